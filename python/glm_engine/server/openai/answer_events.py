"""The parts of OpenAI's answers, whole or as events: choices, deltas, log-probabilities, usage."""

import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from glm_engine.server.choices import Delta, LogprobRows, Rows
from glm_engine.server.http.streaming import LongList, json_parts
from glm_engine.text.dialogue import CallArguments, CallBegin, Content, Reasoning
from glm_engine.text.tokenizer import IncrementalDetokenizer

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta, Turn
    from glm_engine.server.http.streaming import Text
    from glm_engine.server.jobs import Job
    from glm_engine.server.openai.request_fields import PromptFields, StreamOptions
    from glm_engine.text.conversation import Json


PromptRow = tuple[int, float | None, list[tuple[int, float]]]
LEAST_LOGPROB = -9999.0
DONE = b"data: [DONE]\n\n"


def chat_usage_of(job: "Job", turns: "Iterable[Turn]", has_prediction: bool = False) -> "Json":
    """Return the counts of a job whose answers are read into turns, those of thoughts too."""
    details = {"reasoning_tokens": sum(turn.num_thought_tokens for turn in turns)}
    if has_prediction:
        details |= prediction_of(job)
    return {**usage_of(job), "completion_tokens_details": details}


def prediction_of(job: "Job") -> dict[str, int]:
    """Return how many tokens of the prediction came in the answers, and how many did not."""
    lengths = [len(choice.request.prediction_tokens) for choice in job.choices]
    found = zip(job.choices, lengths, strict=True)
    accepted = sum(min(choice.num_predicted_tokens, length) for choice, length in found)
    return {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": sum(lengths) - accepted,
    }


def usage_of(job: "Job") -> "Json":
    """Return the counts of a job; a prompt counts once, however many choices it has."""
    record = job.record
    completion_tokens = sum(choice.num_tokens for choice in job.choices)
    return {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": record.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
    }


def finite(value: float | None) -> float | None:
    """A token that a mask or a bias forbids has minus infinity, which JSON cannot say."""
    return None if value is None else max(value, LEAST_LOGPROB)


def token_text(service: "Service", token_id: int) -> str:
    return service.spelling(token_id).decode("utf-8", "replace")


def chat_entry(service: "Service", token_id: int, logprob: float) -> "Json":
    spelled = service.spelling(token_id)
    return {
        "token": spelled.decode("utf-8", "replace"),
        "logprob": finite(logprob),
        "bytes": list(spelled),
    }


def chat_entries(service: "Service", rows: Rows) -> "Iterator[Json]":
    """Yield one entry a token, each with its best alternatives."""
    for token_id, logprob, top in rows:
        best = [chat_entry(service, *one) for one in top]
        yield {**chat_entry(service, token_id, logprob), "top_logprobs": best}


@dataclass
class PromptRows:
    """The rows of a choice's prompt, with so many best tokens; the first token has None."""

    choice: "Choice"
    num_best: int

    def __iter__(self) -> Iterator[PromptRow]:
        yield self.choice.request.prompt[0], None, []
        for token_id, logprob, top in self.choice.prompt_rows:
            yield token_id, logprob, top[: self.num_best]


def best_tokens(service: "Service", row: PromptRow) -> dict[str, float] | None:
    """Return log-probabilities by text; of tokens with one text, halves of characters, the best."""
    token_id, logprob, top = row
    if logprob is None:
        return None
    best: dict[str, float] = {}
    for one, value in (*top, (token_id, logprob)):
        text = token_text(service, one)
        best[text] = max(value, best.get(text, LEAST_LOGPROB))
    return best


def completion_lists(
    service: "Service", offsets: Iterable[int], *parts: Iterable[PromptRow]
) -> dict[str, Iterator[Any]]:
    """Return the four lists of completions, which are rendered as they are read.

    parts: iterables of rows, one behind the other.
    """
    return {
        "tokens": (token_text(service, token_id) for token_id, _, _ in chain(*parts)),
        "token_logprobs": (finite(logprob) for _, logprob, _ in chain(*parts)),
        "top_logprobs": (best_tokens(service, row) for row in chain(*parts)),
        "text_offset": iter(offsets),
    }


def echoed_offsets(
    spelling: Callable[[int], bytes], ids: Sequence[int], text: str
) -> Iterator[int]:
    """Yield where each token of a prompt begins in the text that an answer repeats.

    A token that the text does not show, such as one that the tokenizer added, takes no room.
    """
    detokenizer, end = IncrementalDetokenizer(spelling), 0
    for token_id in ids:
        yield end
        text_delta = detokenizer.push(token_id)
        if text.startswith(text_delta, end):
            end += len(text_delta)


def prompt_entries(service: "Service", rows: Iterable[PromptRow]) -> "Iterator[Json | None]":
    """Yield vLLM's form of each prompt token: itself and the best in its place, by their ids.

    The rank of a token that is not among the best that were asked for is not known.
    """
    for token_id, logprob, top in rows:
        if logprob is None:
            yield None
            continue
        ranked = [(*best, rank) for rank, best in enumerate(top, start=1)]
        yield {
            str(one): {
                "logprob": finite(value),
                "rank": rank,
                "decoded_token": token_text(service, one),
            }
            for one, value, rank in [(token_id, logprob, None), *ranked]
        }


class TokenLists:
    """The lists of a job's choices; each method gives fields of the answer, none unless asked."""

    def __init__(self, service: "Service", job: "Job", fields: "PromptFields") -> None:
        self.service = service
        self.has_ids = bool(fields.return_token_ids)
        self.num_best = fields.prompt_logprobs
        self.ids = [array("i") for _ in job.choices]

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        """Keep what a text delta of a whole answer adds."""
        if self.has_ids:
            self.ids[choice.index].extend(text_delta.token_ids)

    def of_delta(self, text_delta: "TextDelta") -> "Json":
        return {"token_ids": text_delta.token_ids} if self.has_ids else {}

    def of_choice(self, choice: "Choice") -> "Json":
        return {"token_ids": self.ids[choice.index].tolist()} if self.has_ids else {}

    def of_prompt(self, choice: "Choice") -> "Json":
        made: Json = {}
        if self.has_ids:
            made["prompt_token_ids"] = list(choice.request.prompt)
        if self.num_best is not None:
            rows = PromptRows(choice, self.num_best)
            made["prompt_logprobs"] = LongList(prompt_entries(self.service, rows))
        return made


def has(options: "StreamOptions | None", name: str) -> bool:
    return bool(options and getattr(options, name))


def following(fields: "Json | None") -> bytes:
    """Return fields as JSON that continues an object."""
    return b"," + orjson.dumps(fields)[1:-1] if fields else b""


class AnswerPresenter:
    """What the answers to chats and to prompts have in common; a subclass writes the rest."""

    def __init__(
        self, service: "Service", job: "Job", fields: "PromptFields", writer: "EventWriter"
    ) -> None:
        self.service = service
        self.job = job
        self.writer = writer
        self.listed = TokenLists(service, job, fields)
        self.has_begun = [False] * len(job.choices)

    def opening(self) -> bytes:
        return b""

    def closing(self) -> bytes:
        return self.writer.closing()


class EventWriter:
    """Writes the server-sent events of a job.

    `kind` is the beginning of the answer's id; `key` names what an event's choice holds;
    `count()` returns the usage.
    """

    def __init__(
        self,
        service: "Service",
        job: "Job",
        fields: "PromptFields",
        kind: str,
        object_name: str,
        key: bytes,
        count: "Callable[[], Json]",
    ) -> None:
        self.count = count
        self.ends_with_usage = has(fields.stream_options, "include_usage")
        self.has_counts = has(fields.stream_options, "continuous_usage_stats")
        self.head = {
            "id": f"{kind}-{job.record.request_id}",
            "object": object_name,
            "created": int(time.time()),
            "model": service.model_name,
        }
        opening = orjson.dumps(self.head)[:-1]
        self.before = [
            b'data: %s,"choices":[{"index":%d,"%s":' % (opening, choice.index, key)
            for choice in job.choices
        ]

    def event(
        self,
        index: int,
        value: Any,
        logprobs: "Json | None",
        finish_reason: str | None,
        of_choice: "Json | None" = None,
        of_event: "Json | None" = None,
    ) -> "Text":
        """Return an event that gives a choice `value`, and perhaps its end.

        It comes in parts where `logprobs` holds long lists.
        of_choice, of_event: further fields of the choice and beside the choices.
        """
        before = b'%s%s,"logprobs":' % (self.before[index], orjson.dumps(value))
        told = json_parts(logprobs)
        after = b',"finish_reason":%s%s}]%s%s}\n\n' % (
            b'"%s"' % finish_reason.encode() if finish_reason else b"null",
            following(of_choice),
            following(of_event),
            self.usage(),
        )
        return before + told + after if isinstance(told, bytes) else chain([before], told, [after])

    def usage(self) -> bytes:
        if self.has_counts:
            return b',"usage":%s' % orjson.dumps(self.count())
        return b',"usage":null' if self.ends_with_usage else b""

    def closing(self) -> bytes:
        """Return the last events: the usage where it was asked for, and the mark of the end."""
        if not self.ends_with_usage:
            return DONE
        body = {**self.head, "choices": [], "usage": self.count()}
        return b"data: %s\n\n%s" % (orjson.dumps(body), DONE)

    def body(self, choices: "list[Json]", **of_answer: Any) -> "Text":
        """Return the whole answer instead of events, in parts where it holds long lists."""
        usage = self.count()
        return json_parts({**self.head, "choices": choices, "usage": usage, **of_answer})


def message_delta(deltas: Iterable[Delta]) -> "Json":
    """Return deltas as one of OpenAI's interface; empty where they say nothing yet."""
    made: Json = {}
    for delta in deltas:
        if type(delta) is Content:
            made["content"] = made.get("content", "") + delta.text
        elif type(delta) is Reasoning:
            made["reasoning_content"] = made.get("reasoning_content", "") + delta.text
            made["reasoning"] = made["reasoning_content"]
        elif type(delta) is CallBegin:
            made.setdefault("tool_calls", []).append(begun_call(delta))
        elif type(delta) is CallArguments:
            add_arguments(made.setdefault("tool_calls", []), delta)
    return made


def finish_reason(turn: "Turn", text_delta: "TextDelta") -> str | None:
    calls = text_delta.finish_reason and turn.asks_for_calls
    return "tool_calls" if calls else text_delta.finish_reason


def begun_call(delta: CallBegin) -> "Json":
    return {
        "index": delta.index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": delta.name, "arguments": ""},
    }


def add_arguments(calls: "list[Json]", delta: CallArguments) -> None:
    """Append to the last call of this delta, or write more of one that began before."""
    if calls and calls[-1]["index"] == delta.index:
        calls[-1]["function"]["arguments"] += delta.text
    else:
        calls.append({"index": delta.index, "function": {"arguments": delta.text}})


class Answer:
    """The message of a choice, put together from its deltas; its text begins with `echo`."""

    def __init__(self, echo: str = "") -> None:
        self.texts = {"content": [echo], "reasoning_content": []}
        self.calls: list[Json] = []
        self.arguments: list[list[str]] = []
        self.rows = LogprobRows()
        self.finish_reason: str | None = None

    def take(self, delta: "Json", reason: str | None) -> None:
        for name, texts in self.texts.items():
            texts.append(delta.get(name, ""))
        for call in delta.get("tool_calls", ()):
            self.take_call(call)
        self.finish_reason = reason

    def take_call(self, call: "Json") -> None:
        if "id" in call:
            self.calls.append({name: call[name] for name in ("id", "type", "function")})
            self.arguments.append([])
        self.arguments[-1].append(call["function"]["arguments"])

    def message(self, num_calls: int | None = None) -> "Json":
        """Return the message with its first `num_calls` calls, by default with all."""
        content = "".join(self.texts["content"])
        reasoning = "".join(self.texts["reasoning_content"])
        made: Json = {"role": "assistant", "content": content, "refusal": None}
        for call, text_deltas in zip(self.calls, self.arguments, strict=True):
            call["function"]["arguments"] = "".join(text_deltas)
        if calls := self.calls[:num_calls]:
            made["content"] = content or None
            made["tool_calls"] = calls
        if reasoning:
            made["reasoning_content"] = made["reasoning"] = reasoning
        return made
