"""What vLLM took for a step of decode of the same model on the same kind of GPU, and how."""

VERSION = "0.24.0"
STEP_MS = {1: 6.498, 8: 15.629, 16: 20.998, 64: 32.617, 128: 34.191, 256: 40.247}
WRITTEN = (
    "python -m tools.checkpoint.synthetic --config python/glm_engine/configs/glm-4.5-air-fp8.json "
    "--data random air"
)
REPEATED = (
    "vllm bench latency --model air --skip-tokenizer-init --dtype bfloat16 --max-model-len 512 "
    "--no-enable-prefix-caching --input-len 128 --output-len N --batch-size B"
)
TEXT = (
    f"vLLM's column is vLLM {VERSION} with PyTorch 2.11.0 and CUDA 13.0 on one NVIDIA H200 "
    "(driver 580), 21 and 22 November 2026, not in the run of this page: the same model with "
    "random weights that spread tokens evenly over the experts, by a script over `vllm.LLM` "
    "with `dtype` bfloat16, `max_num_seqs` 256, `max_model_len` 512, `enable_prefix_caching` "
    "off, FlashInfer's sampler off, its defaults else (compiled, in CUDA graphs); experts by "
    "`moe_backend` triton, or by its default (CUTLASS) where that was faster (64 and 256). B "
    "prompts of 128 random tokens, greedy, no end token: the time of 144 new tokens less that "
    "of 16, over 128, the fastest of two each. Its sequences hold 144 to 272 tokens, those of "
    f"this engine begin at 128. To measure the like where vLLM is installed: `{WRITTEN}`, then "
    f"`{REPEATED}` for N = 144 and 16, with `--moe-backend triton` and without; this command "
    "line has not been run here."
)
