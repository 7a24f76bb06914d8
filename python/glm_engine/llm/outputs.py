"""What comes back: answers whole, answers in pieces, and log-probabilities of given tokens."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Logprob:
    """The natural logarithm of a token's probability, as the model has it before sampling.

    rank: 1 for the most likely token; None where the token is not among those that were asked for.
    """

    logprob: float
    rank: int | None
    decoded_token: str


PlaceLogprobs = dict[int, Logprob]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes. `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, object]:
        """Return the arguments as a dictionary; json.JSONDecodeError where the call was cut off."""
        found: dict[str, object] = json.loads(self.arguments)
        return found


@dataclass
class CompletionOutput:
    """One answer to a prompt.

    text: the whole answer as the model wrote it, without what ended it.
    token_ids: all its tokens, the one that ended it among them.
    logprobs: for each token, the log-probabilities by token id; None unless asked for.
    cumulative_logprob: the sum over the tokens; None unless `logprobs` were asked for.
    finish_reason: stop, length or tool_calls.
    stop_reason: the stop text or stop token that ended it; None for any other end.
    content, reasoning, tool_calls: the parts of a chat's answer; None and empty without a chat.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: int | str | None = None
    logprobs: list[PlaceLogprobs] | None = None
    cumulative_logprob: float | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)

    def message(self) -> dict[str, object]:
        """Return a chat's answer as a message, to append to the conversation."""
        made: dict[str, object] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        if self.tool_calls:
            made["tool_calls"] = [call_message(call) for call in self.tool_calls]
        return made


def call_message(call: ToolCall) -> dict[str, object]:
    """Return a call as messages hold it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


@dataclass
class RequestOutput:
    """The answers to one prompt.

    prompt: its text, None where token ids were given; a chat's is what the template made of it.
    prompt_logprobs: for each token of the prompt, the log-probabilities by token id, None for the
    first; None unless asked for.
    num_cached_tokens: how many tokens of the prompt came from the prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[PlaceLogprobs | None] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A piece of call `index` of an answer; `id` and `name` come with its first piece."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass
class OutputChunk:
    """What became certain of an answer since the chunk before.

    prompt_index: which prompt of the call. index: which of its `n` answers.
    finish_reason: None until the last chunk of the answer.
    output: the whole answer, in the last chunk.
    """

    prompt_index: int
    index: int
    text: str
    token_ids: list[int]
    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallChunk] = field(default_factory=list)
    finish_reason: str | None = None
    output: CompletionOutput | None = None


@dataclass
class ScoreOutput:
    """Log-probabilities of the tokens of one text, each given those before it.

    logprobs: one for each of `token_ids`, None for the first, which has nothing before it.
    top_logprobs: for each token, the most likely ones in its place by token id, where asked for.
    """

    prompt: str | None
    token_ids: list[int]
    logprobs: list[float | None]
    top_logprobs: list[PlaceLogprobs | None] | None = None

    def sum(self, begin: int = 0, end: int | None = None) -> float:
        """Return the log-probability of the tokens from `begin` up to `end` together."""
        return math.fsum(one for one in self.logprobs[begin:end] if one is not None)

    @property
    def perplexity(self) -> float:
        """The perplexity of the text; nan where it has one token."""
        count = len(self.logprobs) - 1
        return math.exp(-self.sum() / count) if count else math.nan


Messages = Sequence[Mapping[str, object]]
Tools = Sequence[Mapping[str, object]]
