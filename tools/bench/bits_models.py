"""The models of the ledger of bits, as `tests/data/bits/models.json` states them.

Most are random checkpoints that the tests use; a checkpoint's seed and its config.json decide its
bytes. The table is kept beside the ledgers, so that a ledger stays comparable when a test changes
its model.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from tools.bench.processes import ROOT
from tools.checkpoint.layout import Config, LayoutOptions
from tools.checkpoint.quantise import quantization_config
from tools.checkpoint.random_model import RandomTensors
from tools.checkpoint.shards import CheckpointWriteError, write_model
from tools.checkpoint.synthetic import RepeatedTensors

Options = dict[str, Any]
"""Those of `EngineOptions`, by name."""
MODELS = ROOT / "tests" / "data" / "bits" / "models.json"
LAYOUTS = ("expert_parallel", "tensor_parallel")
CPU_RANKS = (1, 2, 4, 8)
PAIRS = (
    ("bfloat16", True),
    ("fp8_e4m3", False),
    ("bfloat16", False),
    ("fp8_e4m3", True),
)
NUM_USUAL_PAIRS = 2
LARGE = ("wide", "full")


@dataclass(frozen=True)
class Model:
    """Where a model comes from: `path` of a checkpoint, `synthetic` for the config.json whose
    weights the engine draws, or `config` and `seed` of a checkpoint to be written.

    courses: the key of what `record` runs on it; quantised_but: `ignore` of its
    quantization_config.
    """

    name: str
    courses: str = ""
    path: str = ""
    synthetic: str = ""
    num_layers: int = 0
    config: Config | None = None
    seed: int = 0
    quantised_but: list[str] | None = None
    scale_dtype: str = "F32"
    num_shards: int = 1
    most_ranks: int = 1
    is_repeated: bool = False
    in_every_pair: bool = False

    def runs_on(self, device: str) -> bool:
        """CUDA leaves out weights in F32; the CPU leaves out models that are too large for it."""
        if device == "cpu":
            return self.courses not in LARGE
        return not (self.config and self.config.get("torch_dtype") == "float32")

    def open_from(self, folder: Path) -> Path:
        """The checkpoint or config.json to open; a random checkpoint is written below `folder`.

        Raises `BadInputError` where the disk does not take it.
        """
        if self.path or self.synthetic:
            return ROOT / (self.path or self.synthetic)
        place = folder / self.name
        config = dict(self.config or {})
        if self.quantised_but is not None:
            config["quantization_config"] = quantization_config(self.quantised_but)
        make_source = RepeatedTensors if self.is_repeated else RandomTensors
        layout = LayoutOptions(scale_dtype=self.scale_dtype)
        source = make_source(config, self.seed, layout)
        try:
            write_model(place, config, self.num_shards, source, layout)
        except CheckpointWriteError as error:
            raise BadInputError(str(error)) from error
        return place


@dataclass(frozen=True)
class Run:
    """One engine: its options of `EngineOptions`, and how its rows are named."""

    label: str
    options: Options


def models(table: Path | None = None) -> list[Model]:
    """The models of a table, of the ledger's own if none is named."""
    return [Model(name, **fields) for name, fields in read_object(table or MODELS).items()]


def hash_of_files(place: Path) -> str:
    """A hash of config.json and weights, so that a model that changed is told from an engine."""
    files = [place] if place.is_file() else [place / "config.json", *place.glob("*.safetensors")]
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(files):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "blake2b").digest())
    return digest.hexdigest()


def runs_of(model: Model, device: str, num_gpus: int) -> Iterator[Run]:
    """The engines that a model is run on: each number of ranks, layout, KV cache and course."""
    for run in cpu_runs(model) if device == "cpu" else cuda_runs(model, num_gpus):
        yield replace(run, label=f"{model.name} {device} {run.label}")


def cpu_runs(model: Model) -> Iterator[Run]:
    for world_size in CPU_RANKS:
        if world_size <= model.most_ranks:
            yield from runs_of_ranks(world_size)


def cuda_runs(model: Model, num_gpus: int) -> Iterator[Run]:
    if num_gpus > model.most_ranks:
        return
    pairs = PAIRS if model.in_every_pair else PAIRS[:NUM_USUAL_PAIRS]
    for run in runs_of_ranks(num_gpus):
        for kv_dtype, graphs in pairs:
            course = {"kv_dtype": kv_dtype, "graphs": graphs, "plan_ahead": graphs}
            label = f"{run.label} {kv_dtype} {'graphs' if graphs else 'eager'}"
            yield Run(label, run.options | course)


def runs_of_ranks(world_size: int) -> Iterator[Run]:
    if world_size == 1:
        yield Run("W=1", {"world_size": 1})
        return
    for layout in LAYOUTS:
        options = {"world_size": world_size, "expert_layout": layout}
        yield Run(f"W={world_size} {layout}", options)
