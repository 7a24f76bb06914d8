"""The engine from Python: `LLM`, `AsyncLLM`, `SamplingParams` and what they return."""
