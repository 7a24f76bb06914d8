"""Items of a request's input: those that a text model can read; others are refused by name."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import LenientModel, list_by_type, wrong_kind
from glm_engine.server.openai.messages import MAX_PARTS, RefusalPart
from glm_engine.server.parts import Unread

MAX_ITEMS = 4096
REFERENCE = "item_reference"


class Item(LenientModel):
    """Items of answers come back, with fields that nobody reads: id, status, phase."""


class TextPart(Item):
    type: Literal["input_text", "output_text"]
    text: str


class UnreadPart(Unread, Item):
    type: Literal["input_image", "input_file"]


class ThoughtPart(Item):
    type: Literal["reasoning_text"]
    text: str


def text_part(text):
    return {"type": "input_text", "text": text}


Parts = list_by_type(
    *(MAX_PARTS, "part", text_part),
    input_text=TextPart,
    output_text=TextPart,
    refusal=RefusalPart,
)
ResultParts = list_by_type(
    *(MAX_PARTS, "part", text_part),
    input_text=TextPart,
    input_image=UnreadPart,
    input_file=UnreadPart,
)
ThoughtParts = list_by_type(MAX_PARTS, "part", reasoning_text=ThoughtPart)


class MessageItem(Item):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class ThoughtItem(Item):
    type: Literal["reasoning"]
    content: ThoughtParts | None = None
    encrypted_content: str | None = None


class CallItem(Item):
    type: Literal["function_call"]
    call_id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    namespace: str | None = None
    arguments: str | None


class ResultItem(Item):
    type: Literal["function_call_output"]
    call_id: str
    output: ResultParts


Items = list_by_type(
    *(MAX_ITEMS, "item"),
    message=MessageItem,
    reasoning=ThoughtItem,
    function_call=CallItem,
    function_call_output=ResultItem,
)


def typed_items(value):
    """Return a list of items that all say their type; a message need not."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise wrong_kind("a string or a list of items", items)
    for at, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == REFERENCE:
            raise ValueError(
                f"item {at} is an item_reference, but this server does not store items"
            )
    return [
        {"type": "message", **item} if isinstance(item, dict) and "role" in item else item
        for item in items
    ]


Input = Annotated[Items, Field(min_length=1), BeforeValidator(typed_items, str | list[Any])]
