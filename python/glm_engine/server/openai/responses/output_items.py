"""From items of a request's input to the messages that the checkpoint's template takes."""

import base64
import uuid

from glm_engine.server.choices import LogprobRows
from glm_engine.server.fields import text_of
from glm_engine.server.http.streaming import LongList
from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, Content, Reasoning

SEALED = "glm-thought:"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"


def sealed(thought):
    """Return a thought as `encrypted_content`, for clients that send nothing else of it back."""
    return SEALED + base64.b64encode(thought.encode("utf-8", "surrogatepass")).decode()


def thought_of(item):
    """Return the text of a thought; none where only the service that enciphered it can read it."""
    if item.content:
        return text_of(item.content)
    _, _, text = (item.encrypted_content or "").partition(SEALED)
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""


class Item:
    """One item; `event` is the beginning of the names of its own events."""

    prefix = ""
    event = ""

    def __init__(self, index):
        self.id = f"{self.prefix}_{uuid.uuid4().hex}"
        self.index = index
        self.place = {"item_id": self.id, "output_index": index}
        self.texts = []
        self.status = IN_PROGRESS

    @property
    def text(self):
        return "".join(self.texts)

    def begun(self):
        return [self.told("added"), *self.parts("added")]

    def grown(self, text, _rows):
        self.texts.append(text)
        return [(f"{self.event}.delta", {**self.place, "delta": text})]

    def ended(self, status):
        self.status = status
        done = f"{self.event}.done", {**self.place, **self.whole()}
        return [done, *self.parts("done"), self.told("done")]

    def told(self, name):
        return f"response.output_item.{name}", {"output_index": self.index, "item": self.as_dict()}

    def parts(self, _name):
        """Return the event of the item's part, if it has one."""
        return []


class PartItem(Item):
    """An item whose text is its one part of content."""

    def __init__(self, index):
        super().__init__(index)
        self.place["content_index"] = 0

    def content(self):
        return [] if self.status == IN_PROGRESS else [self.part()]

    def parts(self, name):
        return [(f"response.content_part.{name}", {**self.place, "part": self.part()})]


class ThoughtItem(PartItem):
    """is_sealed: the thought comes as `encrypted_content` too."""

    prefix = "rs"
    event = "response.reasoning_text"

    def __init__(self, index, is_sealed):
        super().__init__(index)
        self.is_sealed = is_sealed

    def whole(self):
        return {"text": self.text}

    def part(self):
        return {"type": "reasoning_text", **self.whole()}

    def as_dict(self):
        seals = self.is_sealed and self.status != IN_PROGRESS
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": self.content(),
            "encrypted_content": sealed(self.text) if seals else None,
            "status": self.status,
        }


class MessageItem(PartItem):
    prefix = "msg"
    event = "response.output_text"

    def __init__(self, index, entries_of):
        super().__init__(index)
        self.entries_of = entries_of
        self.rows = LogprobRows()

    def grown(self, text, rows):
        self.rows.extend(rows)
        [(name, fields)] = super().grown(text, rows)
        return [(name, {**fields, "logprobs": LongList(self.entries_of(rows))})]

    def whole(self):
        entries = LongList(self.entries_of(self.rows)) if self.rows else []
        return {"text": self.text, "logprobs": entries}

    def part(self):
        return {"type": "output_text", "annotations": [], **self.whole()}

    def as_dict(self):
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": self.content(),
            "status": self.status,
        }


class CallItem(Item):
    prefix = "fc"
    event = "response.function_call_arguments"

    def __init__(self, index, namespace, name):
        super().__init__(index)
        self.namespace = {"namespace": namespace} if namespace else {}
        self.name = name
        self.call_id = f"call_{uuid.uuid4().hex[:24]}"

    def ended(self, status):
        """Return what ends it; arguments that are not whole are never done."""
        done, item = super().ended(status)
        return [done, item] if status == COMPLETED else [item]

    def whole(self):
        return {"name": self.name, "arguments": self.text}

    def as_dict(self):
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self.call_id,
            **self.whole(),
            **self.namespace,
            "status": self.status,
        }


KINDS = {Reasoning: ThoughtItem, Content: MessageItem, CallArguments: CallItem}


class Output:
    """All items of an answer, of which the last may be open; its methods return events.

    names: the namespace and name of each function, by the name that the model knows.
    entries_of: makes the entries of rows of log-probabilities.
    """

    def __init__(self, seals_thoughts, names, entries_of):
        self.seals_thoughts = seals_thoughts
        self.names = names
        self.entries_of = entries_of
        self.items = []

    @property
    def open(self):
        last = self.items[-1] if self.items else None
        return last if last and last.status == IN_PROGRESS else None

    def take(self, delta, rows=()):
        """Let the items grow by a delta; `rows` are the log-probabilities of its tokens."""
        kind = type(delta)
        if kind is CallEnd:
            return self.end(COMPLETED)
        if kind is CallBegin:
            return self.finish() + self.begin(delta)
        goes_on = type(self.open) is KINDS[kind]
        before = [] if goes_on else self.finish() + self.begin(delta)
        return before + self.items[-1].grown(delta.text, rows)

    def begin(self, delta):
        kind, index = type(delta), len(self.items)
        if kind is CallBegin:
            item = CallItem(index, *self.names.get(delta.name, (None, delta.name)))
        elif kind is Reasoning:
            item = ThoughtItem(index, self.seals_thoughts)
        else:
            item = MessageItem(index, self.entries_of)
        self.items.append(item)
        return item.begun()

    def end(self, status):
        return self.open.ended(status) if self.open else []

    def finish(self, is_whole=True):
        """End what is open; a call without its own end is incomplete, whatever ended it."""
        is_cut = not is_whole or isinstance(self.open, CallItem)
        return self.end(INCOMPLETE if is_cut else COMPLETED)

    def as_list(self):
        """Return the items; a call that is not whole is none of what a client should act on."""
        return [
            item.as_dict()
            for item in self.items
            if item.status == COMPLETED or not isinstance(item, CallItem)
        ]
