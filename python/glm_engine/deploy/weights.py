"""Compares the weights of a model with the memory of the chosen GPUs."""

from glm_engine.bench.costs import SYNTHETIC, config_path
from glm_engine.core.console import human_bytes
from glm_engine.deploy.gpus import rates
from glm_engine.deploy.program import report_of


def weights_line(model, gpu):
    """Return the size of the weights on each GPU, if the package has the model's config.json."""
    name = model.rpartition("/")[2].lower()
    if name not in SYNTHETIC:
        return f"{model}: the size of its weights is known after the download."
    total = report_of("plan", str(config_path(name)), "--device", "cpu")["checkpoint_bytes"]
    memory = rates()["gpus"][gpu.kind]["memory_gb"]
    each = total / gpu.count
    verdict = "do not fit" if each > memory * 1e9 else "leave room for the KV cache"
    return (
        f"{model}: {human_bytes(total)} of weights, about {human_bytes(each)} on each of "
        f"{gpu.count} {gpu.kind} with {memory} GB; they {verdict}."
    )
