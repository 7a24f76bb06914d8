"""A fresh process that keeps the logits of one build: those of each prompt, and of what follows it.

It imports nothing of this checkout but this module: `glm_engine` is the build's own.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np

INTERRUPTED = 130
LIBRARIES = ("engine.so", "libglm_")


def logits_of(engine, tokens: list[int], num_decoded: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 ([prompt tokens, vocabulary] of one prefill, [num_decoded, vocabulary] of decode
    steps)."""
    prompt, rest = tokens[:-num_decoded], tokens[-num_decoded:]
    state, logits = engine.prefill(prompt, all_positions=True)
    decoded = np.stack([engine.decode_step(state, token) for token in rest])
    state.close()
    return logits, decoded


def loaded_libraries() -> list[str]:
    """The engine's libraries that this process has mapped, as Linux names them."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if Path(path).name.startswith(LIBRARIES))


def answer(output: str, lengths: list[int], num_decoded: int, seed: int, options: dict) -> dict:
    """Write the logits to `output`, `"N prompt"` and `"N decode"` of each length N; return the
    libraries that computed them. Raises `ValueError` for logits that are not numbers."""
    from glm_engine.engine import Engine, EngineOptions

    generator, kept = random.Random(seed), {}
    most = max(lengths) + num_decoded
    room = {"max_seq": most, "max_logit_rows": most, "max_batch": 1, "world_size": 1}
    with Engine(EngineOptions(**options, **room, prefix_cache=False)) as engine:
        for length in lengths:
            tokens = [generator.randrange(engine.vocab_size) for _ in range(length + num_decoded)]
            prompt, decoded = logits_of(engine, tokens, num_decoded)
            kept |= {f"{length} prompt": prompt, f"{length} decode": decoded}
        libraries = loaded_libraries()
    unusable = [part for part, rows in kept.items() if not np.isfinite(rows).all()]
    if unusable:
        raise ValueError(f"logits that are not numbers: {', '.join(unusable)}")
    np.savez(output, **kept)
    return {"libraries": libraries}


def main() -> None:
    try:
        told = answer(**json.loads(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
