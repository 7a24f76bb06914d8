"""Ranks sample a share of the rows each: what they choose is what one device chooses.

The engine gives the logits that each token was sampled from; one device draws from these logits
again, with counts made from the tokens so far. Tokens and log-probabilities have equal bits.
"""

from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Request
from glm_engine.verify.device import Backend
from glm_engine.verify.drawing import MAX_LOGPROBS, draw
from glm_engine.verify.header import constants
from tests.devices import device_kind
from tests.engine.masking import mask_of, run_masked
from tests.engine.running import open_engine
from tests.engine.test_sampling import BIASES, CONTROLS, reference_controls
from tests.reference.configs import CONFIGS
from tests.reference.golden import Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator

PROMPT = constants()["GLM_TOKEN_IN_PROMPT"]
NUM_TOKENS = 10
CASES = [
    ("bf16_eight_ranks", 2),
    ("bf16_eight_ranks", 4),
    ("bf16_eight_ranks", 8),
    ("bf16_like_4_7", 2),
]


def masks_of(index: int, vocab_size: int):
    """Every third request may only have some tokens, others at each place."""
    if index % 3 != 1:
        return None

    def mask(tokens: list[int]) -> np.ndarray:
        random = generator("masks over ranks", index, len(tokens))
        return mask_of(random.choice(vocab_size, 20, replace=False), vocab_size)

    return mask


def requests_of(vocab_size: int) -> list[Request]:
    """One request for each kind of sampling, each with logits of its own."""
    random = generator("sampling over ranks")
    return [
        Request(
            prompt=random.integers(vocab_size, size=random.integers(1, 9)).tolist(),
            max_tokens=NUM_TOKENS - index % 4,
            sampling=replace(sampling, num_logprobs=(-1, 0, 5, MAX_LOGPROBS)[index % 4]),
            ignore_eos=True,
            biases=BIASES if index % 2 else {},
            logits=np.zeros((NUM_TOKENS, vocab_size), np.float32),
            logits_capacity=NUM_TOKENS,
        )
        for index, sampling in enumerate(CONTROLS.values())
    ]


def counts_of(request: Request, tokens: list[int]) -> np.ndarray:
    """uint32 [tokens, vocab]: what was counted before each token."""
    counts = np.zeros((len(tokens), request.logits.shape[1]), np.uint32)
    counts[:, request.prompt] = PROMPT
    for index, token in enumerate(tokens):
        counts[index + 1 :, token] += 1
    return counts


def allowed_at(masks, tokens: list[int], vocab_size: int) -> np.ndarray | None:
    if masks is None:
        return None
    bits = np.unpackbits(masks(tokens).view(np.uint8), bitorder="little")
    return bits[:vocab_size].astype(bool)


def drawn_again(device, request: Request, tokens: list[int], masks):
    """One device's draw of each token from the logits that the ranks say they had."""
    vocab_size = request.logits.shape[1]
    controls = [
        replace(
            reference_controls(request.sampling, len(request.prompt) + index, request.biases),
            allowed=allowed_at(masks, tokens[:index], vocab_size),
        )
        for index in range(len(tokens))
    ]
    rows = list(range(len(tokens)))
    logits = request.logits[: len(tokens)]
    wanted = request.sampling.num_logprobs
    return draw(device, logits, controls, wanted, counts_of(request, tokens), rows)


@pytest.mark.parametrize(("name", "world_size"), CASES)
def test_ranks_choose_what_one_device_chooses(name, world_size, random_model):
    vocab_size = CONFIGS[name]["vocab_size"]
    requests = requests_of(vocab_size)
    masks = [masks_of(index, vocab_size) for index in range(len(requests))]
    split = Split(world_size, ExpertLayout.TENSOR_PARALLEL)
    with open_engine(random_model(name), split, max_batch=11, max_logit_rows=7) as engine:
        results = run_masked(engine, requests, masks)
    with Backend(device_kind()).device() as device:
        for request, mask, found in zip(requests, masks, results, strict=True):
            again = drawn_again(device, request, found.tokens, mask)
            assert found.tokens == again.token_ids.tolist()
            wanted = request.sampling.num_logprobs
            for index, event in enumerate(found.events if wanted >= 0 else []):
                assert event.logprob == again.logprob[index]
                best = zip(again.top_ids[index], again.top_logprobs[index], strict=True)
                kept = [pair for pair in best if pair[0] >= 0]
                assert list(event.top_logprobs) == kept[:wanted]
