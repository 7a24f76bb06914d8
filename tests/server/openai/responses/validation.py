"""Reads responses and their events strictly, by the official client's models."""

import typing

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

BEYOND_THE_MODELS = {"store", "name", "bytes"}


def event_models():
    """Return the model of each event, by the value of its `type`."""
    union, *_ = typing.get_args(ResponseStreamEvent)
    return {
        name: model
        for model in typing.get_args(union)
        for name in typing.get_args(model.model_fields["type"].annotation)
    }


EVENTS = event_models()


def check_known(value):
    """Refuse fields that the client's models do not have."""
    if isinstance(value, list):
        for one in value:
            check_known(one)
    elif isinstance(value, pydantic.BaseModel):
        assert set(value.model_extra or ()) <= BEYOND_THE_MODELS, value
        for name in type(value).model_fields:
            check_known(getattr(value, name))


def read(model, text):
    found = model.model_validate_json(text, strict=True)
    check_known(found)
    return found


def read_response(text):
    return read(Response, text)


def read_events(text):
    """Return the events of a stream, each read by its own model, numbered from 0."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    events = []
    for number, block in enumerate(blocks):
        head, data = block.split("\n")
        name = head.removeprefix("event: ")
        events.append(read(EVENTS[name], data.removeprefix("data: ")))
        assert events[-1].type == name
        assert events[-1].sequence_number == number
    return events


def told(items):
    """Return output items without their ids, which are random."""
    dumped = [item.model_dump() for item in items]
    return [
        {key: one for key, one in item.items() if key not in ("id", "call_id")} for item in dumped
    ]


def check_order(events):
    """Check that each item begins, grows and ends, one after the other, as it says it does."""
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    inner = iter([event for event in events[2:-1] if event.type != "response.in_progress"])
    items = [told_item(event, inner) for event in inner]
    response = events[-1].response
    listed = [one for one in items if not is_open_call(one)]
    assert [one.model_dump() for one in listed] == [one.model_dump() for one in response.output]


def is_open_call(item):
    return item.type == "function_call" and item.status == "incomplete"


def told_item(added, events):
    """Read the events of one item; return it as its last one tells it."""
    assert added.type == "response.output_item.added"
    assert added.item.status == "in_progress"
    prefix = {
        "reasoning": "response.reasoning_text",
        "message": "response.output_text",
        "function_call": "response.function_call_arguments",
    }[added.item.type]
    has_part = added.item.type != "function_call"
    if has_part:
        part = next_of(events, "response.content_part.added", added)
        assert (added.item.content, part.part.text) == ([], "")
    texts, rows = [], []
    while (event := next_of(events, "response.", added)).type == f"{prefix}.delta":
        texts.append(event.delta)
        rows += getattr(event, "logprobs", [])
    text = "".join(texts)
    if event.type == "response.output_item.done":
        assert is_open_call(event.item)
        assert event.item.arguments == text
        return event.item
    assert event.type == f"{prefix}.done"
    if has_part:
        assert event.text == text
        part = next_of(events, "response.content_part.done", added)
        assert part.part.text == text
    done = next_of(events, "response.output_item.done", added)
    assert done.item.id == added.item.id
    if not has_part:
        assert done.item.arguments == event.arguments == text
        assert (done.item.call_id, done.item.name) == (added.item.call_id, added.item.name)
        return done.item
    [content] = done.item.content
    assert content.text == text
    if added.item.type == "message":
        assert [row.token for row in content.logprobs] == [row.token for row in rows]
    return done.item


def next_of(events, prefix, added):
    """Return the next event, which must begin with this name and tell of this item."""
    event = next(events)
    assert event.type.startswith(prefix), event
    assert event.output_index == added.output_index
    assert getattr(event, "item_id", added.item.id) == added.item.id
    return event
