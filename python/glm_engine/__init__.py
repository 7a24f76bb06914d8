"""Serves GLM models: `LLM` and `AsyncLLM` in this process, `glm serve` over HTTP.

Names are imported when they are first used, so that `import glm_engine` stays cheap.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from glm_engine.core.errors import BadInputError, EngineError, GlmError
    from glm_engine.llm.async_llm import AsyncLLM
    from glm_engine.llm.llm import LLM
    from glm_engine.llm.outputs import (
        CompletionOutput,
        Logprob,
        OutputChunk,
        RequestOutput,
        ScoreOutput,
        ToolCall,
        ToolCallChunk,
    )
    from glm_engine.llm.sampling_params import SamplingParams, StructuredOutputsParams

    __version__: str

__all__ = [
    "LLM",
    "AsyncLLM",
    "BadInputError",
    "CompletionOutput",
    "EngineError",
    "GlmError",
    "Logprob",
    "OutputChunk",
    "RequestOutput",
    "SamplingParams",
    "ScoreOutput",
    "StructuredOutputsParams",
    "ToolCall",
    "ToolCallChunk",
    "__version__",
]
MODULES = {
    "LLM": "llm.llm",
    "AsyncLLM": "llm.async_llm",
    "BadInputError": "core.errors",
    "EngineError": "core.errors",
    "GlmError": "core.errors",
    "SamplingParams": "llm.sampling_params",
    "StructuredOutputsParams": "llm.sampling_params",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from glm_engine.version import version

        return version()
    from importlib import import_module

    module = MODULES.get(name, "llm.outputs")
    return getattr(import_module(f"glm_engine.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
