"""Writes the answer of a chat job, whole or as events."""

import uuid
from functools import partial

from glm_engine.server.logprob_rows import LogprobRows
from glm_engine.server.long_json import LongList
from glm_engine.server.openai.events import EventWriter
from glm_engine.server.openai.logprobs import chat_entries
from glm_engine.server.openai.token_lists import TokenLists
from glm_engine.server.openai.usage import chat_usage_of
from glm_engine.server.turn import deltas_of
from glm_engine.text.dialogue import CallArguments, CallBegin, Content, Reasoning


def message_delta(deltas):
    """Return deltas as one of OpenAI's interface; empty where they say nothing yet."""
    made = {}
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


def finish_reason(turn, piece):
    calls = piece.finish_reason and turn.asks_for_calls
    return "tool_calls" if calls else piece.finish_reason


def begun_call(delta):
    return {
        "index": delta.index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": delta.name, "arguments": ""},
    }


def add_arguments(calls, delta):
    """Append to the last call of this delta, or write a piece of one that began before."""
    if calls and calls[-1]["index"] == delta.index:
        calls[-1]["function"]["arguments"] += delta.text
    else:
        calls.append({"index": delta.index, "function": {"arguments": delta.text}})


class Answer:
    """The message of a choice, put together from its deltas; its text begins with `echo`."""

    def __init__(self, echo=""):
        self.texts = {"content": [echo], "reasoning_content": []}
        self.calls = []
        self.arguments = []
        self.rows = LogprobRows()
        self.finish_reason = None

    def take(self, delta, reason):
        for name, texts in self.texts.items():
            texts.append(delta.get(name, ""))
        for call in delta.get("tool_calls", ()):
            self.take_call(call)
        self.finish_reason = reason

    def take_call(self, call):
        if "id" in call:
            self.calls.append({name: call[name] for name in ("id", "type", "function")})
            self.arguments.append([])
        self.arguments[-1].append(call["function"]["arguments"])

    def message(self, num_calls=None):
        """Return the message with its first `num_calls` calls, by default with all."""
        content = "".join(self.texts["content"])
        reasoning = "".join(self.texts["reasoning_content"])
        made = {"role": "assistant", "content": content, "refusal": None}
        for call, pieces in zip(self.calls, self.arguments, strict=True):
            call["function"]["arguments"] = "".join(pieces)
        if calls := self.calls[:num_calls]:
            made["content"] = content or None
            made["tool_calls"] = calls
        if reasoning:
            made["reasoning_content"] = made["reasoning"] = reasoning
        return made


class ChatPresenter:
    """The events or the body of a chat answer; `echo` comes before what each choice says."""

    def __init__(self, service, job, fields, turns, echo=""):
        self.service = service
        self.job = job
        kind = "chat.completion.chunk" if fields.stream else "chat.completion"
        count = partial(chat_usage_of, job, turns, fields.prediction is not None)
        self.writer = EventWriter(service, job, fields, "chatcmpl", kind, b"delta", count)
        self.closing = self.writer.closing
        self.wants_logprobs = bool(fields.logprobs)
        self.turns = turns
        self.echo = echo
        self.listed = TokenLists(service, job, fields)
        self.answers = [Answer(echo) for _ in turns]
        self.has_begun = [False] * len(turns)

    def event(self, choice, piece):
        """Return the server-sent event of a piece; empty where it says nothing."""
        turn, index = self.turns[choice.index], choice.index
        delta = message_delta(deltas_of(self.job, turn, choice, piece))
        of_choice, of_event = self.listed.of_piece(piece), {}
        if not (delta or piece.logprobs or piece.finish_reason or any(of_choice.values())):
            return b""
        if not any(self.has_begun):
            of_event = self.listed.of_prompt(choice)
        if not self.has_begun[index]:
            self.has_begun[index] = True
            content = self.echo + delta.get("content", "")
            delta = {"role": "assistant", **delta, "content": content}
        rows, reason = self.logprobs(piece.logprobs), finish_reason(turn, piece)
        return self.writer.event(index, delta, rows, reason, of_choice, of_event)

    def logprobs(self, rows):
        if not self.wants_logprobs:
            return None
        return {"content": list(chat_entries(self.service, rows)), "refusal": None}

    def take(self, choice, piece):
        turn = self.turns[choice.index]
        delta = message_delta(deltas_of(self.job, turn, choice, piece))
        answer = self.answers[choice.index]
        self.listed.take(choice, piece)
        answer.take(delta, finish_reason(turn, piece))
        answer.rows.extend(piece.logprobs)

    def choice_body(self, choice):
        answer, entries = self.answers[choice.index], None
        if self.wants_logprobs:
            content = LongList(chat_entries(self.service, answer.rows))
            entries = {"content": content, "refusal": None}
        return {
            "index": choice.index,
            "message": answer.message(self.turns[choice.index].num_calls),
            "logprobs": entries,
            "finish_reason": answer.finish_reason,
            **self.listed.of_choice(choice),
        }

    def body(self):
        choices = [self.choice_body(choice) for choice in self.job.choices]
        return self.writer.body(choices, **self.listed.of_prompt(self.job.choices[0]))
