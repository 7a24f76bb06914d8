"""What all endpoints share: engine, tokenizer, limits, counts."""

from codecs import getincrementaldecoder
from functools import partial
from pathlib import Path

from glm_engine.core.acceptance import looks_up
from glm_engine.server.admission import Gate
from glm_engine.server.bridge import EngineBridge
from glm_engine.server.grammars import Grammars, make_compiler
from glm_engine.server.guides import Guides
from glm_engine.server.logs import log
from glm_engine.server.metrics import Metrics, MetricsPage
from glm_engine.server.model_configs import (
    AUTO,
    generation_config_path,
    read_generation_config,
    read_overrides,
    sampling_defaults,
    warn_of_unapplied,
)
from glm_engine.server.prompts import PromptEncoder
from glm_engine.server.tracing import tracing_of
from glm_engine.text.template import template_of

IDS_OF_PART = 16_384


class Service:
    """One engine with everything that serving it needs."""

    def __init__(self, settings, engine, tokenizer, model, keys):
        info = engine.info()
        self.settings = settings
        self.engine = engine
        self.tokenizer = tokenizer
        self.model_names = settings.model_names
        self.model_name = settings.model_names[0]
        self.max_seq = info["max_seq"]
        self.vocab_size = info["vocab_size"]
        self.looks_up = looks_up(info)
        self.max_queue = model.max_queue
        self.template = model.template
        self.ending_ids = frozenset(info["eos_tokens"])
        self.defaults = model.defaults
        self.keys = keys
        self.guides = Guides(engine, info["max_draft_tokens"])
        self.bridge = EngineBridge(engine, self.guides)
        self.encoder = PromptEncoder(tokenizer, self.max_seq, settings)
        self.tracing = tracing_of(self.model_name)
        self.metrics = Metrics()
        self.metrics_page = MetricsPage(self)
        self.gate = Gate(info["max_batch"] + self.max_queue, settings)
        make = partial(make_compiler, tokenizer, self.vocab_size, self.ending_ids, self.template)
        self.grammars = Grammars(settings, self.gate, make)
        self.streams = set()
        self.jobs = set()

    def spelling(self, token_id):
        """Return a token's bytes."""
        return self.tokenizer.bytes_of(token_id)

    def decode(self, ids, skip_special_tokens=False):
        """Return the text of ids; each of them is looked up once."""
        skipped = self.tokenizer.special_ids if skip_special_tokens else frozenset()
        spelled = {one: b"" if one in skipped else self.spelling(one) for one in set(ids)}
        decoder = getincrementaldecoder("utf-8")("replace")
        parts = [ids[at : at + IDS_OF_PART] for at in range(0, len(ids), IDS_OF_PART)]
        texts = [decoder.decode(b"".join(map(spelled.get, part))) for part in parts]
        return "".join([*texts, decoder.decode(b"", final=True)])

    def cut_off(self, error):
        """End every request, begun streams with this error as their last event."""
        for job in list(self.jobs):
            job.fail(error)
        for stream in list(self.streams):
            stream.break_off_if_writing()
        self.gate.refuse_unanswered()

    def end_processes(self):
        """End the processes that render and compile, and with them what threads wait for."""
        if self.template is not None:
            self.template.close()
        self.grammars.end_processes()

    def is_usable(self):
        return bool(self.engine.info()["is_usable"])


class ModelFiles:
    """What the server reads of a checkpoint's folder beside its weights, or in its place."""

    def __init__(self, tokenizer_dir, max_queue, template_file=None, generation=AUTO, overrides=()):
        """generation: a folder, `auto` or `none`. overrides: fields that win over its file's."""
        folder = Path(tokenizer_dir)
        self.max_queue = max_queue
        self.template = template_of(folder, template_file)
        path = generation_config_path(folder, generation)
        found = read_generation_config(path)
        warn_of_unapplied(path, found, log.warning)
        self.defaults = sampling_defaults(found, read_overrides(dict(overrides)))
