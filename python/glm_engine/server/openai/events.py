"""The parts that all events of a stream have: a head made once, and an end."""

import time

import orjson

from glm_engine.server import long_json

DONE = b"data: [DONE]\n\n"


def has(options, name):
    return bool(options and getattr(options, name))


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

    def event(self, index, value, logprobs, finish_reason):
        """Return an event that gives a choice `value`, and perhaps its end."""
        return b'%s%s,"logprobs":%s,"finish_reason":%s}]%s}\n\n' % (
            self.before[index],
            orjson.dumps(value),
            b"null" if logprobs is None else orjson.dumps(logprobs),
            b'"%s"' % finish_reason.encode() if finish_reason else b"null",
            self.usage(),
        )

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

    def body(self, choices):
        """Return the whole answer instead of events, in parts where it holds long lists."""
        return long_json.dumps({**self.head, "choices": choices, "usage": self.count()})
