"""All operations of a device beside those of its oracle."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from glm_engine.verify import row_cases, sequence_cases
from glm_engine.verify.device import BackendError, Device
from glm_engine.verify.header import constants
from glm_engine.verify.measures import Answer, Finding, finding
from glm_engine.verify.model_shape import ModelShape

Case = Callable[[Device, ModelShape], Iterator[Answer]]
CASES: Mapping[str, Case] = {
    "place_vector": row_cases.vectors,
    "embed": row_cases.embedding,
    "quantise": row_cases.quantisers,
    "swiglu_quantise": row_cases.swiglu,
    "linear": row_cases.linears,
    "norm_rope_store": sequence_cases.norm_rope_store,
    "attention": sequence_cases.attention,
    "attention over FP8": sequence_cases.attention_over_codes,
    "route": row_cases.route,
    "experts": row_cases.experts,
    "logits": row_cases.logits,
    "count_tokens": sequence_cases.counting,
    "sample": sequence_cases.sampling,
    "begin_step": sequence_cases.steps,
    "begin_drafts": sequence_cases.drafts,
    "copy_pages": sequence_cases.pages,
}


def answers(device: Device, case: Case, shape: ModelShape) -> tuple[list[Answer], str | None]:
    """What a case gives, and why it ended early."""
    found: list[Answer] = []
    try:
        found.extend(case(device, shape))
        device.synchronise()
    except BackendError as error:
        return found, error.text
    finally:
        device.release_blocks()
    return found, None


def compare(
    name: str, case: Case, tested: Device, oracle: Device, shape: ModelShape
) -> list[Finding]:
    """The findings of a case: the worst number of rows of each operation at each shape."""
    actual, message = answers(tested, case, shape)
    expected, refusal = answers(oracle, case, shape)
    in_float32 = tested.activation_type == np.float32
    pairs = zip(actual, expected, strict=False)
    found = worst([finding(*pair, in_float32) for pair in pairs])
    for text in (message, refusal and f"the oracle: {refusal}"):
        if text:
            found.append(Finding(name, "", 0, float("inf"), 0.0, text))
    return found


def worst(findings: list[Finding]) -> list[Finding]:
    """One finding of each operation and shape, that of the greatest error."""
    kept: dict[tuple[str, str], Finding] = {}
    for each in findings:
        key = each.operation, each.shape
        if key not in kept or each.severity >= kept[key].severity:
            kept[key] = each
    return list(kept.values())


def is_lost(device: Device) -> bool:
    """Whether a device answers no more."""
    status: int = device.table.synchronise(device.handle)
    return status == constants()["GLM_DEVICE_ERROR"]
