"""Whether the weights of a model fit the GPUs that are asked for, before anything is sent."""

from glm_engine.bench.costs import SYNTHETIC, config_path
from glm_engine.console import human_bytes
from glm_engine.deploy.gpus import rates
from glm_engine.deploy.program import report_of


def weights_line(model, gpu):
    """Say what the weights take of each GPU, of a model whose config.json is in the package."""
    name = model.rpartition("/")[2].lower()
    if name not in SYNTHETIC:
        return f"{model}: what its weights take is known once it is downloaded"
    total = report_of("plan", str(config_path(name)), "--device", "cpu")["checkpoint_bytes"]
    memory = rates()["gpus"][gpu.kind]["memory_gb"]
    each = total / gpu.count
    verdict = "does not fit" if each > memory * 1e9 else "leaves room for keys and values"
    return (
        f"{model}: {human_bytes(total)} of weights, about {human_bytes(each)} on each of "
        f"{gpu.count} {gpu.kind} with {memory} GB: {verdict}"
    )
