"""Chat messages to prompt text through the checkpoint's own template.

The environment is the one that transformers gives a template, so that a template
renders the same text here and there.
"""

import json
from datetime import datetime
from pathlib import Path

from glm_engine.errors import BadInputError
from glm_engine.tokenizer import tokenizer_config

TEMPLATE_FILE = "chat_template.jinja"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """The compiled template of one checkpoint."""

    def __init__(self, model_dir):
        config = tokenizer_config(model_dir)
        self.source, text = template_text(Path(model_dir), config)
        self.template = compiled(self.source, text)
        self.special_tokens = {
            name: content(config[name]) for name in SPECIAL_TOKENS if config.get(name)
        }

    def render(self, messages, add_generation_prompt=True, **variables):
        """Return the prompt text of messages, each with a role and its content."""
        import jinja2

        try:
            return self.template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=variables.pop("tools", None),
                documents=variables.pop("documents", None),
                **self.special_tokens,
                **variables,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise BadInputError(
                f"{self.source.name}: cannot render these messages: {error}"
            ) from error


def template_text(model_dir, config):
    """Return where the template stands and its text."""
    path = model_dir / TEMPLATE_FILE
    if path.is_file():
        return path, path.read_text(encoding="utf-8")
    source = model_dir / "tokenizer_config.json"
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {row.get("name"): row.get("template") for row in found}
        found = named.get("default")
    if not isinstance(found, str):
        raise BadInputError(f"{model_dir}: neither {TEMPLATE_FILE} nor a chat_template inside")
    return source, found


def compiled(source, text):
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    try:
        return environment.from_string(text)
    except jinja2.TemplateError as error:
        raise BadInputError(f"{source}: not a template: {error}") from error


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message):
    import jinja2

    raise jinja2.TemplateError(message)


def content(token):
    """A special token is stated as text or as an object with its text in `content`."""
    return token.get("content", "") if isinstance(token, dict) else token
