"""Decodes with transformers: the same questions as `engine_worker.py`, weights in float32."""

import os
import time
import warnings

import torch
from transformers import AutoConfig, Glm4MoeForCausalLM
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from tools.bench.processes import answer_all
from tools.bench.prompts import CAPITALS, prompts
from tools.checkpoint.verify import dequantised, read_tensors


def load(attention: str, experts: str) -> torch.nn.Module:
    """The checkpoint in float32, without hooks."""
    config = AutoConfig.from_pretrained(CAPITALS)
    del config.quantization_config
    return Glm4MoeForCausalLM.from_pretrained(
        None,
        config=config,
        state_dict=dequantised(read_tensors(CAPITALS)),
        dtype=torch.float32,
        attn_implementation=attention,
        experts_implementation=experts,
    ).eval()


class Models:
    """One model for each pair of implementations, loaded when first asked for."""

    def __init__(self):
        self.loaded = {}

    def __getitem__(self, key: tuple[str, str]) -> torch.nn.Module:
        if key not in self.loaded:
            self.loaded[key] = load(*key)
        return self.loaded[key]


@torch.inference_mode()
def measure(model, batch: int, num_tokens: int, warm_up: int, num_steps: int) -> dict:
    """One forward over all prompts, then greedy steps over transformers' own KV cache."""
    ids = torch.tensor(prompts(batch, num_tokens))
    begin = time.monotonic()
    result = model(ids, use_cache=True, logits_to_keep=1)
    token = result.logits[:, -1].argmax(-1, keepdim=True)
    first = time.monotonic()
    for step in range(warm_up + num_steps):
        if step == warm_up:
            steady = time.monotonic()
        result = model(
            token, past_key_values=result.past_key_values, use_cache=True, logits_to_keep=1
        )
        token = result.logits[:, -1].argmax(-1, keepdim=True)
    return {
        "prefill_tokens_per_second": batch * num_tokens / (first - begin),
        "decode_tokens_per_second": batch * num_steps / (time.monotonic() - steady),
    }


def main() -> None:
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    warnings.filterwarnings("ignore")
    disable_progress_bar()
    set_verbosity_error()
    models = Models()
    answer_all(
        lambda attention, experts, **question: measure(models[attention, experts], **question)
    )


if __name__ == "__main__":
    main()
