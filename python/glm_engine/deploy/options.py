"""The options of `glm deploy`, as tables, and what is made of them."""

from pathlib import Path

import click

from glm_engine import options
from glm_engine.commands.bench import NumberList
from glm_engine.deploy.deployment import SHIPS, Deployment, chosen_wheel
from glm_engine.deploy.gpus import parse_gpu
from glm_engine.deploy.job import OWN_MODEL, Job
from glm_engine.errors import BadInputError
from glm_engine.hub.names import NAME

MODEL_ON_MODAL = "zai-org/GLM-4.7-FP8"
LOCAL_HOST = "127.0.0.1"

here_option = options.grouped("With --local")
modal_option = options.grouped("On Modal")

WHERE = (
    click.option("--local", "is_local", is_flag=True, help="Run here; nothing goes to Modal."),
    click.option(
        "--dry-run", "is_dry_run", is_flag=True, help="Say what would go to Modal; send nothing."
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the dry run whole, as one JSON object; reports of stages always are one.",
    ),
    click.option("--only", "is_alone", is_flag=True, help="Leave out the stages before this one."),
    options.with_argument(
        options.model_option(
            "--model",
            "-m",
            envvar="GLM_MODEL",
            shell_complete=options.complete_path,
            show_default=f"{MODEL_ON_MODAL}; with --local {OWN_MODEL}",
            help=f"The model's name on the hub, {OWN_MODEL}, or with --local a folder.",
        ),
        target="model",
    ),
    options.model_option(
        "--revision", default=Job.revision, help="The model's commit, branch or tag on the hub."
    ),
    click.option(
        "--batch",
        "batches",
        type=NumberList(),
        default=Job.batches,
        help="Batch sizes that the benchmark decodes.",
    ),
    click.option(
        "--prefill",
        "prefill_tokens",
        type=NumberList(),
        default=Job.prefill_tokens,
        help="Lengths of prompts that it prefills.",
    ),
)
LOCAL = (
    here_option(
        "--device",
        type=click.Choice(options.DEVICES),
        default="auto",
        help="auto takes CUDA where an NVIDIA GPU is, else the CPU.",
    ),
    here_option(
        "--world-size",
        type=options.WorldSize(1),
        metavar="N|auto",
        default="auto",
        help="Ranks; on Modal there is one for each GPU.",
    ),
    here_option(
        "--port",
        type=options.Whole(0, 65535),
        default=Job.port,
        help="Of the server, on the loopback; 0: any free.",
    ),
)
LOCAL_NAMES = ("device", "world_size", "port")


def stated(flag, name, kind, help_text):
    """Return an option whose default is that of `Deployment`."""
    return modal_option(flag, name, type=kind, default=getattr(Deployment, name), help=help_text)


APP = stated("--app", "app_name", str, "The app's name.")
MODAL = (
    APP,
    modal_option(
        "--gpu",
        default="B200:8",
        help="GPUs of a container: H100, H200 or B200, with :1, :2, :4 or :8.",
    ),
    modal_option(
        "--ship",
        type=click.Choice(SHIPS),
        default=SHIPS[0],
        help="artifacts: the wheel; source: what builds it, which Modal then does.",
    ),
    modal_option(
        "--wheel",
        shell_complete=options.complete_path,
        show_default="the one in build/wheel",
        help="The wheel that goes along.",
    ),
    modal_option("--hub-secret", help="The secret with HF_TOKEN."),
    stated("--keys-secret", "keys_secret", str, "The secret with the server's GLM_API_KEYS."),
    stated(
        "--min-replicas", "min_replicas", options.NOT_NEGATIVE, "Containers kept without requests."
    ),
    stated("--max-replicas", "max_replicas", options.POSITIVE, "Containers at most."),
    stated(
        "--scaledown-window",
        "scaledown_seconds",
        options.Whole(2, 3600),
        "Seconds without requests after which a container ends.",
    ),
    stated(
        "--concurrent-requests",
        "concurrent_requests",
        options.POSITIVE,
        "Requests at once in a container before Modal starts another.",
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


def refuse_foreign(context, is_local):
    """Refuse options of the other place: what is stated must not be passed over."""
    flags = {param.name: param.opts[0] for param in context.command.params}
    for name in (*MODAL_NAMES, "is_dry_run") if is_local else LOCAL_NAMES:
        if options.is_stated(name):
            about = (
                "Modal, where --local does not go" if is_local else "this machine; it needs --local"
            )
            raise BadInputError(f"{flags[name]}: is about {about}")


def local_job(values):
    """Return the job of this machine."""
    here = {name: values[name] for name in LOCAL_NAMES}
    return Job(values["model"] or OWN_MODEL, host=LOCAL_HOST, **here, **measured(values))


def measured(values):
    """Return what of a job is the same in both places; lists as the command line states them."""
    return {
        "revision": values["revision"],
        "batches": ",".join(map(str, values["batches"])),
        "prefill_tokens": ",".join(map(str, values["prefill_tokens"])),
    }


def modal_deployment(values):
    """Return the deployment on Modal; BadInputError where a value is of no use there."""
    gpu = parse_gpu(values["gpu"])
    if values["min_replicas"] > values["max_replicas"]:
        raise BadInputError(
            f"--min-replicas: expected at most --max-replicas, {values['max_replicas']}, "
            f"found {values['min_replicas']}"
        )
    job = Job(hub_name(values["model"]), world_size=gpu.count, **measured(values))
    wheel = chosen_wheel(values["ship"], values["wheel"])
    kept = [name for name in MODAL_NAMES if name not in ("gpu", "ship", "wheel")]
    return Deployment(job, gpu, wheel, **{name: values[name] for name in kept})


def hub_name(model):
    """Return the name of a model that a container can bring by itself."""
    model = model or MODEL_ON_MODAL
    if model != OWN_MODEL and (Path(model).exists() or not NAME.fullmatch(model)):
        raise BadInputError(
            f"--model: expected a name of the hub such as {MODEL_ON_MODAL}, or {OWN_MODEL}, "
            f"found {model}; a folder is served with --local"
        )
    return model
