"""Writes the answer of a job: events as text comes, or one response at the end."""

import time
from functools import partial
from itertools import chain

import orjson

from glm_engine.server import long_json
from glm_engine.server.openai.logprobs import chat_entries
from glm_engine.server.openai.responses.echo import what_was_asked
from glm_engine.server.openai.responses.fields import LOGPROBS, THOUGHTS
from glm_engine.server.openai.responses.output import COMPLETED, IN_PROGRESS, INCOMPLETE, Output
from glm_engine.server.openai.responses.tools import client_names
from glm_engine.server.openai.usage import usage_of
from glm_engine.server.places import TokenPlaces
from glm_engine.server.streaming import EventStream
from glm_engine.server.turn import deltas_of
from glm_engine.text.dialogue import Content

FAILED = "failed"
ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
CUT = "max_output_tokens"


class ResponseStream(EventStream):
    """A stream whose errors, and signs of life, are events with the response as it is then."""

    begins_at_once = True

    def sign_of_life(self):
        return self.presenter.progress()

    def failure(self, error, _path):
        return self.presenter.failure(error)


class ResponsePresenter:
    """The events or the body of an answer."""

    def __init__(self, service, job, fields, turn):
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

    def event(self, choice, piece):
        return self.written(self.changes(choice, piece))

    def take(self, choice, piece):
        self.changes(choice, piece)

    def changes(self, choice, piece):
        """Return the events, as (name, fields), of what a piece adds."""
        if self.lists_logprobs:
            self.places.add(piece)
        events = []
        for delta in deltas_of(self.job, self.turn, choice, piece):
            events += self.output.take(delta, self.rows(delta))
        return events

    def rows(self, delta):
        """Return the log-probabilities of the tokens that spell a delta of the answer."""
        if not self.lists_logprobs or type(delta) is not Content:
            return ()
        return self.places.spelling(delta)[1]

    def opening(self):
        """Return the events that begin the response."""
        begun = {"response": self.response(IN_PROGRESS)}
        return chain(self.written([("response.created", begun)]), self.progress())

    def progress(self):
        """Return the event that says that the response is not over."""
        return self.written([("response.in_progress", {"response": self.response(IN_PROGRESS)})])

    def closing(self):
        """Return what ends the response: its last item, and the response as it is now."""
        events = self.output.finish(self.is_whole())
        status = self.status()
        return self.written([*events, (f"response.{status}", {"response": self.response(status)})])

    def failure(self, error):
        """Return the events of an error after the stream has begun."""
        self.output.end(INCOMPLETE)
        told = {"code": error.code, "message": error.detail, "param": error.param}
        code = ERROR_CODES.get(error.status_code, "server_error")
        response = self.response(FAILED, {"code": code, "message": error.detail})
        return self.written([("error", told), ("response.failed", {"response": response})])

    def written(self, events):
        """Return the parts of the text of events, which are numbered now."""
        numbered = list(enumerate(events, self.num_events))
        self.num_events += len(numbered)
        return chain.from_iterable(event_parts(number, *event) for number, event in numbered)

    def is_whole(self):
        return self.turn.is_over or self.job.choices[0].finish_reason == "stop"

    def status(self):
        return COMPLETED if self.is_whole() else INCOMPLETE

    def response(self, status, error=None):
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

    def usage(self):
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

    def body(self):
        self.output.finish(self.is_whole())
        return long_json.dumps(self.response(self.status()))


def event_parts(number, name, fields):
    data = long_json.dumps({"type": name, "sequence_number": number, **fields})
    yield b"event: %s\ndata: " % name.encode()
    yield from (data,) if isinstance(data, bytes) else data
    yield b"\n\n"
