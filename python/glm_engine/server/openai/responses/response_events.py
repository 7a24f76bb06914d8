"""What a response says of its request, at every stage."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import orjson

from glm_engine.server.choices import Delta, Rows, TokenPlaces, deltas_of
from glm_engine.server.http.streaming import EventStream, json_parts
from glm_engine.server.openai.answer_events import chat_entries, usage_of
from glm_engine.server.openai.responses.output_items import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    Event,
    Output,
)
from glm_engine.server.openai.responses.response_fields import LOGPROBS, THOUGHTS, client_names
from glm_engine.text.dialogue import Content

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta, Turn
    from glm_engine.server.http.api_errors import ApiError
    from glm_engine.server.http.streaming import Text
    from glm_engine.server.jobs import Job
    from glm_engine.server.openai.responses.response_fields import (
        ResponsesRequest,
        TextConfig,
        ToolChoice,
    )
    from glm_engine.text.conversation import Json


ONLY_TEXT = {"type": "text"}
FAILED = "failed"
ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
CUT = "max_output_tokens"


def what_was_asked(service: "Service", job: "Job", fields: "ResponsesRequest") -> "Json":
    """Return the names of a response and the fields of its request, defaults filled in."""
    sampling = dict(service.defaults)
    sampling |= {name: one for name in sampling if (one := getattr(fields, name)) is not None}
    return {
        "id": f"resp_{job.record.request_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": service.model_name,
        "background": False,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": fields.prompt_cache_key,
        "reasoning": {"effort": fields.reasoning_effort, "summary": None},
        "safety_identifier": fields.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": sampling["temperature"],
        "text": {"format": format_of(fields.text), "verbosity": fields.verbosity},
        "tool_choice": choice_of(fields.tool_choice),
        "tools": [tool.model_dump() for tool in fields.tools or ()],
        "top_logprobs": fields.top_logprobs or 0,
        "top_p": sampling["top_p"],
        "truncation": "disabled",
        "user": fields.user,
    }


def format_of(text: "TextConfig | None") -> "Json":
    if text is None or text.format is None:
        return ONLY_TEXT
    return text.format.model_dump(by_alias=True, exclude_none=True)


def choice_of(choice: "ToolChoice | None") -> "str | Json":
    return (choice or "auto") if isinstance(choice, str | None) else choice.model_dump()


class ResponseStream(EventStream):
    """A stream whose errors, and signs of life, are events with the response as it is then."""

    presenter: "ResponsePresenter"

    def sign_of_life(self) -> "Text":
        return self.presenter.progress()

    def failure(self, error: "ApiError", _path: str) -> "Text":
        return self.presenter.failure(error)


class ResponsePresenter:
    """The events or the body of an answer."""

    def __init__(
        self, service: "Service", job: "Job", fields: "ResponsesRequest", turn: "Turn"
    ) -> None:
        self.service = service
        self.job = job
        self.turn = turn
        asked = what_was_asked(service, job, fields)
        self.head = {name: orjson.Fragment(orjson.dumps(one)) for name, one in asked.items()}
        self.lists_logprobs = fields.includes(LOGPROBS)
        entries_of = partial(chat_entries, service)
        self.output = Output(fields.includes(THOUGHTS), client_names(fields.tools), entries_of)
        self.places = TokenPlaces()
        self.num_events = 0

    def event(self, choice: "Choice", text_delta: "TextDelta") -> "Text":
        return self.written(self.changes(choice, text_delta))

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        self.changes(choice, text_delta)

    def changes(self, choice: "Choice", text_delta: "TextDelta") -> list[Event]:
        """Return the events, as (name, fields), of what a text delta adds."""
        if self.lists_logprobs:
            self.places.add(text_delta)
        events = []
        for delta in deltas_of(self.job, self.turn, choice, text_delta):
            events += self.output.take(delta, self.rows(delta))
        return events

    def rows(self, delta: Delta) -> Rows:
        """Return the log-probabilities of the tokens that spell a delta of the answer."""
        if not self.lists_logprobs or type(delta) is not Content:
            return ()
        return self.places.spelling(delta)[1]

    def opening(self) -> "Iterator[bytes]":
        """Return the events that begin the response."""
        begun = {"response": self.response(IN_PROGRESS)}
        return chain(self.written([("response.created", begun)]), self.progress())

    def progress(self) -> "Iterator[bytes]":
        """Return the event that says that the response is not over."""
        return self.written([("response.in_progress", {"response": self.response(IN_PROGRESS)})])

    def closing(self) -> "Text":
        """Return what ends the response: its last item, and the response as it is now."""
        events = self.output.finish(self.is_whole())
        status = self.status()
        return self.written([*events, (f"response.{status}", {"response": self.response(status)})])

    def failure(self, error: "ApiError") -> "Text":
        """Return the events of an error after the stream has begun."""
        self.output.end(INCOMPLETE)
        told = {"code": error.code, "message": error.detail, "param": error.param}
        code = ERROR_CODES.get(error.status_code, "server_error")
        response = self.response(FAILED, {"code": code, "message": error.detail})
        return self.written([("error", told), ("response.failed", {"response": response})])

    def written(self, events: Iterable[Event]) -> Iterator[bytes]:
        """Return the parts of the text of events, which are numbered now."""
        numbered = list(enumerate(events, self.num_events))
        self.num_events += len(numbered)
        return chain.from_iterable(event_parts(number, *event) for number, event in numbered)

    def is_whole(self) -> bool:
        return self.turn.is_over or self.job.choices[0].finish_reason == "stop"

    def status(self) -> str:
        return COMPLETED if self.is_whole() else INCOMPLETE

    def response(self, status: str, error: "Json | None" = None) -> "Json":
        """Return the JSON of the response at one of its stages."""
        stage = {
            "status": status,
            "completed_at": int(time.time()) if status == COMPLETED else None,
            "error": error,
            "incomplete_details": {"reason": CUT} if status == INCOMPLETE else None,
            "output": self.output.as_list(),
            "usage": None if status == IN_PROGRESS else self.usage(),
        }
        return {**self.head, **stage}

    def usage(self) -> "Json":
        counts = usage_of(self.job)
        return {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": counts["prompt_tokens_details"]["cached_tokens"],
                "cache_write_tokens": 0,
            },
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self.turn.num_thought_tokens},
            "total_tokens": counts["total_tokens"],
        }

    def body(self) -> "Text":
        self.output.finish(self.is_whole())
        return json_parts(self.response(self.status()))


def event_parts(number: int, name: str, fields: "Json") -> Iterator[bytes]:
    data = json_parts({"type": name, "sequence_number": number, **fields})
    yield b"event: %s\ndata: " % name.encode()
    yield from (data,) if isinstance(data, bytes) else data
    yield b"\n\n"
