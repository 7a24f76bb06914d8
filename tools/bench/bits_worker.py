"""A fresh process that keeps the logits of one build: those of each prompt, and of what follows it.

It imports nothing of this checkout but this module: `glm_engine` is the build's own.
"""

import json
import random
import sys

import numpy as np

from glm_engine.engine import Engine, EngineOptions
from glm_engine.errors import GlmError


def logits_of(engine, tokens: list[int], num_decoded: int) -> tuple[np.ndarray, np.ndarray]:
    """([prompt tokens, vocabulary] of one prefill, [num_decoded, vocabulary] of decode steps)."""
    prompt, rest = tokens[:-num_decoded], tokens[-num_decoded:]
    state, logits = engine.prefill(prompt, all_positions=True)
    decoded = np.stack([engine.decode_step(state, token) for token in rest])
    state.close()
    return logits, decoded


def answer(output: str, lengths: list[int], num_decoded: int, seed: int, options: dict) -> dict:
    generator, kept = random.Random(seed), {}
    most = max(lengths) + num_decoded
    room = {"max_seq": most, "max_logit_rows": most, "max_batch": 1, "world_size": 1}
    with Engine(EngineOptions(**options, **room, prefix_cache=False)) as engine:
        for length in lengths:
            tokens = [generator.randrange(engine.vocab_size) for _ in range(length + num_decoded)]
            prompt, decoded = logits_of(engine, tokens, num_decoded)
            kept |= {f"{length} prompt": prompt, f"{length} decode": decoded}
    np.savez(output, **kept)
    unusable = [part for part, rows in kept.items() if not np.isfinite(rows).all()]
    return {"error": f"logits that are no numbers: {', '.join(unusable)}"} if unusable else {}


def main() -> None:
    try:
        told = answer(**json.loads(sys.argv[1]))
    except GlmError as error:
        told = {"error": str(error)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
