"""The parts that all events of a stream have: a head made once, and an end."""

import time

import orjson

from glm_engine.server.openai.usage import usage_of

DONE = b"data: [DONE]\n\n"


def has(options, name):
    return bool(options and getattr(options, name))


def following(fields):
    """Return fields as JSON that continues an object."""
    return b"," + orjson.dumps(fields)[1:-1] if fields else b""


class EventWriter:
    """Writes the server-sent events of a job.

    `kind` is the beginning of the answer's id; `key` names what an event's choice holds.
    """

    def __init__(self, service, job, fields, kind, object_name, key):
        self.job = job
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

        of_choice, of_event: further fields of the choice and beside the choices.
        """
        return b'%s%s,"logprobs":%s,"finish_reason":%s%s}]%s%s}\n\n' % (
            self.before[index],
            orjson.dumps(value),
            b"null" if logprobs is None else orjson.dumps(logprobs),
            b'"%s"' % finish_reason.encode() if finish_reason else b"null",
            following(of_choice),
            following(of_event),
            self.usage(),
        )

    def usage(self):
        if self.has_counts:
            return b',"usage":%s' % orjson.dumps(usage_of(self.job))
        return b',"usage":null' if self.ends_with_usage else b""

    def closing(self):
        """Return the last events: the usage where it was asked for, and the mark of the end."""
        if not self.ends_with_usage:
            return DONE
        body = {**self.head, "choices": [], "usage": usage_of(self.job)}
        return b"data: %s\n\n%s" % (orjson.dumps(body), DONE)

    def body(self, choices, **of_answer):
        """Return the whole answer instead of events."""
        body = {**self.head, "choices": choices, "usage": usage_of(self.job), **of_answer}
        return orjson.dumps(body)
