"""Content blocks of messages: those that a text model can read; others are refused by name."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import LenientModel, list_by_type
from glm_engine.server.parts import Unread

MAX_BLOCKS = 4096


class Block(LenientModel):
    """Blocks of answers come back, with fields that nobody reads: cache_control, signature."""


class TextBlock(Block):
    type: Literal["text"]
    text: str


class ThinkingBlock(Block):
    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Block):
    """A thought that only the service which enciphered it can read."""

    type: Literal["redacted_thinking"]


def object_or_none(value):
    """Return what a call's input is: clients write that of a call without arguments as null."""
    return {} if value is None or value == "" else value


class ToolUseBlock(Block):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    input: Annotated[dict[str, Any], BeforeValidator(object_or_none)]


def text_block(text):
    return {"type": "text", "text": text}


blocks_of = partial(list_by_type, MAX_BLOCKS, "block", text_block)


TextBlocks = blocks_of(text=TextBlock)


class UnreadBlock(Unread, Block):
    type: Literal["image", "document"]


ResultBlocks = blocks_of(text=TextBlock, image=UnreadBlock, document=UnreadBlock)


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: ResultBlocks | None = None
    is_error: bool | None = None


UserBlocks = blocks_of(text=TextBlock, tool_result=ToolResultBlock)
AssistantBlocks = blocks_of(
    text=TextBlock,
    thinking=ThinkingBlock,
    redacted_thinking=RedactedThinkingBlock,
    tool_use=ToolUseBlock,
)
