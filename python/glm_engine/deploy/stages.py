"""The stages of a deployment, here or in a container.

Each takes a `Job`, logs its findings and returns its report; a stage that fails raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glm_engine.core.layout import CAPITALS
from glm_engine.deploy.job import Job
from glm_engine.deploy.program import Report, StageFailedError, log_event, report_of
from glm_engine.deploy.warm import WarmServer

REQUEST_SECONDS = 3600
QUESTION = "The capital of France is"
PLAN_FIELDS = (
    "device",
    "world_size",
    "max_seq",
    "max_batch",
    "num_pages",
    "tokens_of_context",
    "concurrent_requests",
    "fits",
)
DECODE_FIELDS = ("batch", "context", "tokens_per_second", "step_ms", "share_of_floor")
PREFILL_FIELDS = ("tokens", "tokens_per_second", "seconds")


def download(job: Job) -> Report:
    """Pull the checkpoint for the other stages, unless the model is a folder."""
    if Path(job.source).is_dir():
        report = {"model": job.model, "folder": job.source, "fetched_bytes": 0}
    else:
        report = report_of("pull", job.model, "--revision", job.revision)
    log_event("checkpoint", **report)
    return report


def build(job: Job) -> Report:
    """Check engine, devices and packages of this machine."""
    findings = report_of("doctor")["findings"]
    lacking = [one["name"] for one in findings if one["state"] == "MISSING"]
    found = {one["name"]: one["detail"] for one in findings if one["state"] == "found"}
    log_event("libraries", lacking=lacking, found=found)
    if lacking:
        raise StageFailedError(f"build: missing {', '.join(lacking)}; run `glm doctor` for details")
    return {"lacking": lacking, "device": job.device}


def validate(job: Job) -> Report:
    """Check the checkpoint, plan it, load it, and ask the model that ships with the engine."""
    folder = validate_shards(job)
    validate_tokenizer(folder)
    validate_plan(job)
    report: Report = {"loaded": validate_load(job), "golden": validate_golden(job)}
    return {"model": folder, **report}


def validate_shards(job: Job) -> str:
    """Read every header of the checkpoint and return its folder."""
    found = report_of("inspect", job.source, "--summary")
    shards = found["shards"]
    log_event(
        "shards",
        folder=found["model_dir"],
        shards=len(shards),
        bytes=sum(one["bytes"] for one in shards),
        tensors=sum(one["num_tensors"] for one in shards),
        problems=found["problems"],
    )
    if found["problems"]:
        problem = found["problems"][0]
        where = ": ".join(filter(None, (found["model_dir"], problem["file"], problem["tensor"])))
        raise StageFailedError(f"{where}: {problem['message']}")
    return str(found["model_dir"])


def validate_tokenizer(folder: str) -> None:
    """Encode and decode a sentence, and render a question if there is a chat template."""
    from glm_engine.text.template import template_of
    from glm_engine.text.tokenizer import GlmTokenizer

    tokenizer = GlmTokenizer(folder)
    ids = tokenizer.encode(QUESTION)
    template = template_of(Path(folder))
    prompt = template.render([{"role": "user", "content": QUESTION}]) if template else None
    decoded = tokenizer.decode(ids)
    log_event(
        "tokenizer",
        vocab_size=tokenizer.vocab_size,
        ids=ids,
        decoded=decoded,
        prompt=prompt,
    )
    if decoded != QUESTION:
        raise StageFailedError(f"{folder}: tokenizer: expected {QUESTION!r}, got {decoded!r}")


def validate_plan(job: Job) -> Report:
    """Check that weights and KV cache fit before loading."""
    planned = report_of("plan", job.source, *job.engine_arguments())
    shown = {name: planned[name] for name in PLAN_FIELDS if name in planned}
    log_event("plan", **shown)
    if not planned["fits"]:
        raise StageFailedError(f"{job.source} does not fit: {planned['reason']}")
    return shown


def validate_load(job: Job) -> Report:
    """Load the model and generate one token."""
    arguments = ("--model", job.source, "--max-tokens", "1", *job.engine_arguments())
    loaded = report_of("generate", QUESTION, *arguments)
    shown = {name: loaded[name] for name in ("device", "load_seconds", "completion")}
    log_event("engine_loaded", model=job.source, **shown)
    return shown


def validate_golden(job: Job) -> Report:
    """Ask the model that ships with the engine for answers that are known."""
    asked = report_of("evaluate", "--model", str(CAPITALS), *job.engine_arguments())
    shown = {name: asked[name] for name in ("num_asked", "num_right", "accuracy", "threshold")}
    log_event("golden", model="capitals", device=asked["device"], **shown)
    if not asked["passed"]:
        raise StageFailedError(
            f"capitals: {asked['num_right']} of {asked['num_asked']} answers are correct; "
            f"expected at least {asked['threshold']:.0%}"
        )
    return shown


def smoke(job: Job) -> Report:
    """Complete “The capital of France is”; fail without “Paris” in the answer."""
    report = report_of("smoke", "--model", job.source, *job.engine_arguments())
    log_event("smoke", **report)
    if not report["passed"]:
        raise StageFailedError(f"smoke: expected Paris, got {report['completion']!r}")
    return report


def benchmark(job: Job) -> Report:
    """Measure prefill and decode speed."""
    sizes = ("--batch", job.batches, "--prefill", job.prefill_tokens, "--no-profile")
    report = report_of("bench", "--model", job.source, *sizes, *job.engine_arguments())
    for kind, names in (("decode", DECODE_FIELDS), ("prefill", PREFILL_FIELDS)):
        for row in report[kind]:
            log_event(kind, **{name: row[name] for name in (*names, "skipped") if name in row})
    return report


@dataclass(frozen=True)
class Stage:
    """A function of the app: its body and the resources of its container.

    `memory` is in MiB, `timeout` in seconds; `cpu` counts physical cores.
    """

    body: Callable[[Job], Any]
    needs_gpu: bool
    cpu: float
    memory: int
    timeout: int

    @property
    def name(self) -> str:
        return self.body.__name__


PIPELINE = (
    Stage(download, False, cpu=8, memory=16_384, timeout=4 * 3600),
    Stage(build, False, cpu=2, memory=4_096, timeout=600),
    Stage(validate, True, cpu=16, memory=65_536, timeout=3600),
    Stage(smoke, True, cpu=16, memory=65_536, timeout=3600),
    Stage(benchmark, True, cpu=16, memory=65_536, timeout=2 * 3600),
)


SERVING = Stage(WarmServer, True, cpu=16, memory=65_536, timeout=REQUEST_SECONDS)


def stages_until(name: str, alone: bool = False) -> tuple[Stage, ...]:
    """Return the stages from the first to that of this name; `alone`: that one."""
    names = [stage.name for stage in PIPELINE]
    last = names.index(name)
    return PIPELINE[last if alone else 0 : last + 1]
