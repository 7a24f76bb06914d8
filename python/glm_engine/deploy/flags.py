"""The options of `glm deploy`, as tables, and the job and deployment made of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import (
    NOT_NEGATIVE,
    POSITIVE,
    NumberList,
    Whole,
    WorldSize,
    complete_path,
)
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import OWN_MODEL
from glm_engine.deploy.deployment import RELEASE, SHIPS, Deployment, chosen_ship_and_wheel
from glm_engine.deploy.gpus import parse_gpu
from glm_engine.deploy.job import Job
from glm_engine.hub.names import NAME

MODEL_ON_MODAL = "zai-org/GLM-4.7-FP8"
LOCAL_HOST = "127.0.0.1"


here_option = options.grouped("With --local")
modal_option = options.grouped("On Modal")

WHERE = (
    click.option("--local", "is_local", is_flag=True, help="Run on this machine, without Modal."),
    click.option(
        "--dry-run",
        "is_dry_run",
        is_flag=True,
        help="Show what would be sent to Modal, without sending it.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the plan or dry run as JSON; step reports are always JSON.",
    ),
    click.option(
        "--only",
        "is_alone",
        is_flag=True,
        help="Run only this command, without the steps before it.",
    ),
    options.with_argument(
        options.model_option(
            "--model",
            "-m",
            envvar="GLM_MODEL",
            shell_complete=complete_path,
            show_default=f"{MODEL_ON_MODAL}, or {OWN_MODEL} with --local",
            help=f"ORG/NAME on the Hugging Face hub, or “{OWN_MODEL}” (the small built-in test"
            f" model);"
            " with --local, also a folder.",
        ),
        target="model",
    ),
    options.model_option(
        "--revision", default=Job.revision, help="Branch, tag or commit of the model on the hub."
    ),
    click.option(
        "--batch",
        "batches",
        type=NumberList(),
        default=Job.batches,
        help="Batch sizes to measure decode at, comma-separated.",
    ),
    click.option(
        "--prefill",
        "prefill_tokens",
        type=NumberList(),
        default=Job.prefill_tokens,
        help="Prompt lengths to measure prefill at, in tokens, comma-separated.",
    ),
)
LOCAL = (
    here_option(
        "--device",
        type=click.Choice(options.DEVICES),
        default="auto",
        help="Device to run on; auto uses the GPU if there is one, otherwise the CPU.",
    ),
    here_option(
        "--world-size",
        type=WorldSize(1),
        metavar="N|auto",
        default="auto",
        help="Number of GPUs to split the model across.",
    ),
    here_option(
        "--port",
        type=Whole(0, 65535),
        default=Job.port,
        help="Port of the server on 127.0.0.1; 0 picks a free port.",
    ),
)
LOCAL_NAMES = ("device", "world_size", "port")


def stated(
    flag: str, name: str, kind: type[str] | click.ParamType[Any, Any], help_text: str
) -> options.Decorator:
    """Return an option whose default is that of `Deployment`."""
    return modal_option(flag, name, type=kind, default=getattr(Deployment, name), help=help_text)


APP = stated("--app", "app_name", str, "Name of the Modal app.")
MODAL = (
    APP,
    modal_option(
        "--gpu",
        default="B200:8",
        help="GPUs per container: H100, H200 or B200, followed by :1, :2, :4 or :8.",
    ),
    modal_option(
        "--ship",
        type=click.Choice(SHIPS),
        show_default="artifacts, or index if glm was installed from a wheel",
        help="How the image gets the engine: artifacts sends a wheel; source sends the checkout"
        f" and builds it there; index installs {RELEASE} from the package index.",
    ),
    modal_option(
        "--wheel",
        shell_complete=complete_path,
        show_default="the wheel in build/wheel",
        help="Wheel to send; it must be built with CUDA support.",
    ),
    modal_option("--hub-secret", help="Modal secret that contains HF_TOKEN, for gated models."),
    stated(
        "--keys-secret",
        "keys_secret",
        str,
        "Modal secret that contains GLM_API_KEYS, the server's API keys.",
    ),
    stated(
        "--min-replicas",
        "min_replicas",
        NOT_NEGATIVE,
        "Minimum number of containers.",
    ),
    stated("--max-replicas", "max_replicas", POSITIVE, "Maximum number of containers."),
    stated(
        "--scaledown-window",
        "scaledown_seconds",
        Whole(2, 3600),
        "Stop a container after this many seconds without requests.",
    ),
    stated(
        "--concurrent-requests",
        "concurrent_requests",
        POSITIVE,
        "Concurrent requests per container before Modal starts another container.",
    ),
)
MODAL_NAMES = (
    "app_name",
    "gpu",
    "ship",
    "wheel",
    "hub_secret",
    "keys_secret",
    "min_replicas",
    "max_replicas",
    "scaledown_seconds",
    "concurrent_requests",
)


def refuse_foreign(is_local: bool) -> None:
    """Refuse options that have no effect: those of Modal with --local, and the other way round."""
    flags = {param.name: param.opts[0] for param in click.get_current_context().command.params}
    for name in (*MODAL_NAMES, "is_dry_run") if is_local else LOCAL_NAMES:
        if options.is_stated(name):
            needed = "cannot be used with --local" if is_local else "needs --local"
            raise BadInputError(f"{flags[name]} {needed}")


def local_job(values: Mapping[str, Any]) -> Job:
    """Return the job of this machine."""
    here = {name: values[name] for name in LOCAL_NAMES}
    return Job(values["model"] or OWN_MODEL, host=LOCAL_HOST, **here, **measured(values))


def measured(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that do not depend on the place; lists are texts again."""
    return {
        "revision": values["revision"],
        "batches": ",".join(map(str, values["batches"])),
        "prefill_tokens": ",".join(map(str, values["prefill_tokens"])),
    }


def modal_deployment(values: Mapping[str, Any]) -> Deployment:
    """Return the deployment on Modal; BadInputError if a value cannot be used there."""
    gpu = parse_gpu(values["gpu"])
    if values["min_replicas"] > values["max_replicas"]:
        raise BadInputError(
            f"--min-replicas: expected no more than --max-replicas ({values['max_replicas']}), "
            f"got {values['min_replicas']}"
        )
    job = Job(hub_name(values["model"]), world_size=gpu.count, **measured(values))
    ship, wheel = chosen_ship_and_wheel(values["ship"], values["wheel"])
    kept = [name for name in MODAL_NAMES if name not in ("gpu", "ship", "wheel")]
    return Deployment(job, gpu, wheel, ship, **{name: values[name] for name in kept})


def hub_name(model: str | None) -> str:
    """Return the name of a model that a container can pull by itself."""
    model = model or MODEL_ON_MODAL
    if model != OWN_MODEL and (Path(model).exists() or not NAME.fullmatch(model)):
        raise BadInputError(
            f"--model: expected the ORG/NAME of a model on the hub, e.g. {MODEL_ON_MODAL}, "
            f"or {OWN_MODEL}, got {model}; a folder needs --local"
        )
    return model
