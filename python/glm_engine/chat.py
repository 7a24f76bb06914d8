"""Chat messages to prompt text through the checkpoint's own template, in a bounded process."""

from pathlib import Path

from glm_engine.bounded_process import BoundedProcess, Bounds
from glm_engine.errors import BadInputError
from glm_engine.files import read_text
from glm_engine.tokenizer import TOKENIZER_CONFIG_FILE, tokenizer_config

TEMPLATE_FILE = "chat_template.jinja"
PROCESS = "glm_engine.template_process"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
BOUNDS = Bounds(seconds=2.0, patience_seconds=30.0, memory_bytes=1 << 29)


class ChatTemplate:
    """The template of one checkpoint, and the processes that render it: one for each thread."""

    def __init__(self, model_dir, bounds=BOUNDS):
        config = tokenizer_config(model_dir)
        self.source, self.text = template_text(Path(model_dir), config)
        self.bounds = bounds
        self.special_tokens = {
            name: content(config[name]) for name in SPECIAL_TOKENS if config.get(name)
        }
        self.idle = [self.begun()]

    def begun(self):
        """Return a process that has compiled the template."""
        process = BoundedProcess(PROCESS, self.bounds)
        self.text_of(process.ask(self.text), "not a template")
        return process

    def text_of(self, answer, fault):
        """Return the text of a process's answer; else BadInputError."""
        if answer is None:
            raise BadInputError(f"{self.source}: {fault}: it takes more than {self.bounds}")
        if "problem" in answer:
            raise BadInputError(f"{self.source}: {fault}: {answer['problem']}")
        return answer["text"]

    def render(self, messages, add_generation_prompt=True, **variables):
        """Return the prompt text of messages, each with a role and its content."""
        question = {"tools": None, "documents": None, **self.special_tokens, **variables}
        question |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        process = self.taken()
        answer = process.ask(question)
        if answer is not None:
            self.idle.append(process)
        return self.text_of(answer, "cannot render these messages")

    def taken(self):
        """Return a process that no other thread uses."""
        while self.idle:
            try:
                process = self.idle.pop()
            except IndexError:
                break
            if process.is_running:
                return process
        return self.begun()

    def close(self):
        for process in self.idle:
            process.stop()
        self.idle.clear()


def template_of(folder):
    """Return the chat template, or None for a checkpoint that has none."""
    try:
        return ChatTemplate(folder)
    except BadInputError:
        if (folder / TEMPLATE_FILE).is_file():
            raise
        return None


def template_text(model_dir, config):
    """Return where the template stands and its text."""
    path = model_dir / TEMPLATE_FILE
    if path.is_file():
        return path, read_text(path)
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {row.get("name"): row.get("template") for row in found if isinstance(row, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise BadInputError(f"{model_dir}: neither {TEMPLATE_FILE} nor a chat_template inside")
    return model_dir / TOKENIZER_CONFIG_FILE, found


def content(token):
    """A special token is stated as text or as an object with its text in `content`."""
    return token.get("content", "") if isinstance(token, dict) else token
