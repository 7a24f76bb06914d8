"""What all endpoints share: engine, tokenizer, limits, counts."""

from functools import partial
from pathlib import Path

from glm_engine.chat import template_of
from glm_engine.detokenizer import IncrementalDetokenizer
from glm_engine.errors import BadInputError
from glm_engine.server.admission import Gate
from glm_engine.server.bridge import EngineBridge
from glm_engine.server.grammars import Grammars, make_compiler
from glm_engine.server.guides import Guides
from glm_engine.server.metrics import Metrics, MetricsPage
from glm_engine.server.model_configs import (
    read_config,
    read_generation_config,
    sampling_defaults,
)
from glm_engine.server.prompts import PromptEncoder

GENERATION_CONFIG_FILE = "generation_config.json"
UNKNOWN_TOKEN = "\ufffd".encode()


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
        self.max_queue = model.max_queue
        self.template = model.template
        self.ending_ids = model.ending_ids
        self.defaults = model.defaults
        self.keys = keys
        self.guides = Guides(engine)
        self.bridge = EngineBridge(engine, self.guides)
        self.encoder = PromptEncoder(tokenizer, self.max_seq, settings)
        self.metrics = Metrics()
        self.metrics_page = MetricsPage(self)
        self.gate = Gate(info["max_batch"] + self.max_queue, settings)
        make = partial(make_compiler, tokenizer, self.vocab_size, model)
        self.grammars = Grammars(settings, self.gate, make)
        self.streams = set()
        self.jobs = set()

    def spelling(self, token_id):
        """Return a token's bytes; an id that only the weights know is U+FFFD."""
        try:
            return self.tokenizer.bytes_of(token_id)
        except BadInputError:
            return UNKNOWN_TOKEN

    def detokenizer(self, skip_special_tokens=True):
        skipped = self.tokenizer.special_ids if skip_special_tokens else frozenset()
        return IncrementalDetokenizer(self.spelling, skipped)

    def decode(self, ids, skip_special_tokens=False):
        """Return the text of ids; each of them is looked up once."""
        skipped = self.tokenizer.special_ids if skip_special_tokens else frozenset()
        spelled = {one: b"" if one in skipped else self.spelling(one) for one in set(ids)}
        return b"".join(map(spelled.get, ids)).decode("utf-8", "replace")

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
    """What the server reads of a checkpoint's folder beside its weights."""

    def __init__(self, tokenizer_dir, config_path, max_queue):
        folder = Path(tokenizer_dir)
        self.max_queue = max_queue
        self.template = template_of(folder)
        config = read_config(config_path)
        generation = read_generation_config(folder / GENERATION_CONFIG_FILE, config.vocab_size)
        self.ending_ids = frozenset(config.eos_token_id)
        self.defaults = sampling_defaults(generation)
