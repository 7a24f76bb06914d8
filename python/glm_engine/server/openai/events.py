"""The parts that all events of a stream have: a head made once, and an end."""

import time
from itertools import chain

import orjson

from glm_engine.server import long_json

DONE = b"data: [DONE]\n\n"


def has(options, name):
    return bool(options and getattr(options, name))


def following(fields):
    """Return fields as JSON that continues an object."""
    return b"," + orjson.dumps(fields)[1:-1] if fields else b""


class EventWriter:
    """Writes the server-sent events of a job.

    `kind` is the beginning of the answer's id; `key` names what an event's choice holds;
    `count()` returns the usage.
    """

    def __init__(self, service, job, fields, kind, object_name, key, count):
        self.count = count
        self.ends_with_usage = has(fields.stream_options, "include_usage")
        self.has_counts = has(fields.stream_options, "continuous_usage_stats")
        self.head = {
            "id": f"{kind}-{job.visit.request_id}",
            "object": object_name,
            "created": int(time.time()),
            "model": service.model_name,
        }
        opening = orjson.dumps(self.head)[:-1]
        self.before = [
            b'data: %s,"choices":[{"index":%d,"%s":' % (opening, choice.index, key)
            for choice in job.choices
        ]

    def event(self, index, value, logprobs, finish_reason, of_choice=None, of_event=None):
        """Return an event that gives a choice `value`, and perhaps its end.

        It comes in parts where `logprobs` holds long lists.
        of_choice, of_event: further fields of the choice and beside the choices.
        """
        before = b'%s%s,"logprobs":' % (self.before[index], orjson.dumps(value))
        told = long_json.dumps(logprobs)
        after = b',"finish_reason":%s%s}]%s%s}\n\n' % (
            b'"%s"' % finish_reason.encode() if finish_reason else b"null",
            following(of_choice),
            following(of_event),
            self.usage(),
        )
        return before + told + after if isinstance(told, bytes) else chain([before], told, [after])

    def usage(self):
        if self.has_counts:
            return b',"usage":%s' % orjson.dumps(self.count())
        return b',"usage":null' if self.ends_with_usage else b""

    def closing(self):
        """Return the last events: the usage where it was asked for, and the mark of the end."""
        if not self.ends_with_usage:
            return DONE
        body = {**self.head, "choices": [], "usage": self.count()}
        return b"data: %s\n\n%s" % (orjson.dumps(body), DONE)

    def body(self, choices, **of_answer):
        """Return the whole answer instead of events, in parts where it holds long lists."""
        usage = self.count()
        return long_json.dumps({**self.head, "choices": choices, "usage": usage, **of_answer})
