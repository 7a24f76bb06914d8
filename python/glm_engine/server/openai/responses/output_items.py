"""From items of a request's input to the messages that the checkpoint's template takes."""

import base64
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glm_engine.server.choices import Delta, LogprobRows, Rows
from glm_engine.server.fields import text_of
from glm_engine.server.http.streaming import LongList
from glm_engine.text.conversation import Json
from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, Content, Reasoning

if TYPE_CHECKING:
    from glm_engine.server.openai.responses import response_fields


Event = tuple[str, Json]
EntriesOf = Callable[[Rows], Iterator[Json]]
SEALED = "glm-thought:"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"


def sealed(thought: str) -> str:
    """Return a thought as `encrypted_content`, for clients that send nothing else of it back."""
    return SEALED + base64.b64encode(thought.encode("utf-8", "surrogatepass")).decode()


def thought_of(item: "response_fields.ThoughtItem") -> str:
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

    def __init__(self, index: int) -> None:
        self.id = f"{self.prefix}_{uuid.uuid4().hex}"
        self.index = index
        self.place: Json = {"item_id": self.id, "output_index": index}
        self.texts: list[str] = []
        self.status = IN_PROGRESS

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def whole(self) -> Json:
        """Return the text as the item's last event tells it."""
        raise NotImplementedError

    def as_dict(self) -> Json:
        raise NotImplementedError

    def begun(self) -> list[Event]:
        return [self.told("added"), *self.parts("added")]

    def grown(self, text: str, _rows: Rows) -> list[Event]:
        self.texts.append(text)
        return [(f"{self.event}.delta", {**self.place, "delta": text})]

    def ended(self, status: str) -> list[Event]:
        self.status = status
        done = f"{self.event}.done", {**self.place, **self.whole()}
        return [done, *self.parts("done"), self.told("done")]

    def told(self, name: str) -> Event:
        return f"response.output_item.{name}", {"output_index": self.index, "item": self.as_dict()}

    def parts(self, _name: str) -> list[Event]:
        """Return the event of the item's part, if it has one."""
        return []


class PartItem(Item):
    """An item whose text is its one part of content."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.place["content_index"] = 0

    def part(self) -> Json:
        raise NotImplementedError

    def content(self) -> "list[Json]":
        return [] if self.status == IN_PROGRESS else [self.part()]

    def parts(self, name: str) -> list[Event]:
        return [(f"response.content_part.{name}", {**self.place, "part": self.part()})]


class ThoughtItem(PartItem):
    """is_sealed: the thought comes as `encrypted_content` too."""

    prefix = "rs"
    event = "response.reasoning_text"

    def __init__(self, index: int, is_sealed: bool) -> None:
        super().__init__(index)
        self.is_sealed = is_sealed

    def whole(self) -> Json:
        return {"text": self.text}

    def part(self) -> Json:
        return {"type": "reasoning_text", **self.whole()}

    def as_dict(self) -> Json:
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

    def __init__(self, index: int, entries_of: EntriesOf) -> None:
        super().__init__(index)
        self.entries_of = entries_of
        self.rows = LogprobRows()

    def grown(self, text: str, rows: Rows) -> list[Event]:
        self.rows.extend(rows)
        [(name, fields)] = super().grown(text, rows)
        return [(name, {**fields, "logprobs": LongList(self.entries_of(rows))})]

    def whole(self) -> Json:
        entries: LongList | list[Json] = LongList(self.entries_of(self.rows)) if self.rows else []
        return {"text": self.text, "logprobs": entries}

    def part(self) -> Json:
        return {"type": "output_text", "annotations": [], **self.whole()}

    def as_dict(self) -> Json:
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

    def __init__(self, index: int, namespace: str | None, name: str) -> None:
        super().__init__(index)
        self.namespace = {"namespace": namespace} if namespace else {}
        self.name = name
        self.call_id = f"call_{uuid.uuid4().hex[:24]}"

    def ended(self, status: str) -> list[Event]:
        """Return what ends it; arguments that are not whole are never done."""
        done, item = super().ended(status)
        return [done, item] if status == COMPLETED else [item]

    def whole(self) -> Json:
        return {"name": self.name, "arguments": self.text}

    def as_dict(self) -> Json:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self.call_id,
            **self.whole(),
            **self.namespace,
            "status": self.status,
        }


KINDS: dict[type[Delta], type[Item]] = {
    Reasoning: ThoughtItem,
    Content: MessageItem,
    CallArguments: CallItem,
}


@dataclass
class Output:
    """All items of an answer, of which the last may be open; its methods return events.

    names: the namespace and name of each function, by the name that the model knows.
    entries_of: makes the entries of rows of log-probabilities.
    """

    seals_thoughts: bool
    names: Mapping[str, tuple[str | None, str]]
    entries_of: EntriesOf
    items: list[Item] = field(default_factory=list)

    @property
    def open(self) -> Item | None:
        last = self.items[-1] if self.items else None
        return last if last and last.status == IN_PROGRESS else None

    def take(self, delta: Delta, rows: Rows = ()) -> list[Event]:
        """Let the items grow by a delta; `rows` are the log-probabilities of its tokens."""
        if isinstance(delta, CallEnd):
            return self.end(COMPLETED)
        if isinstance(delta, CallBegin):
            return self.finish() + self.begin(delta)
        goes_on = type(self.open) is KINDS[type(delta)]
        before = [] if goes_on else self.finish() + self.begin(delta)
        return before + self.items[-1].grown(delta.text, rows)

    def begin(self, delta: Delta) -> list[Event]:
        index = len(self.items)
        item: Item
        if isinstance(delta, CallBegin):
            item = CallItem(index, *self.names.get(delta.name, (None, delta.name)))
        elif isinstance(delta, Reasoning):
            item = ThoughtItem(index, self.seals_thoughts)
        else:
            item = MessageItem(index, self.entries_of)
        self.items.append(item)
        return item.begun()

    def end(self, status: str) -> list[Event]:
        return self.open.ended(status) if self.open else []

    def finish(self, is_whole: bool = True) -> list[Event]:
        """End what is open; a call without its own end is incomplete, whatever ended it."""
        is_cut = not is_whole or isinstance(self.open, CallItem)
        return self.end(INCOMPLETE if is_cut else COMPLETED)

    def as_list(self) -> "list[Json]":
        """Return the items; a call that is not whole is none of what a client should act on."""
        return [
            item.as_dict()
            for item in self.items
            if item.status == COMPLETED or not isinstance(item, CallItem)
        ]
