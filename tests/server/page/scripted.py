"""Answers of a server in exact bytes and exact chunks, given to the page in place of fetch."""

import json


def chunk(delta: dict, finish_reason: str | None = None) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def call(index: int, *, name: str | None = None, arguments: str | None = None) -> dict:
    """A chunk with a piece of a tool call."""
    named = {"name": name, "arguments": arguments}
    function = {key: value for key, value in named.items() if value is not None}
    return chunk({"tool_calls": [{"index": index, "function": function}]})


def event_stream(*chunks: dict, newline: str = "\n", done: bool = True) -> bytes:
    texts = [json.dumps(one, ensure_ascii=False) for one in chunks] + ["[DONE]"] * done
    return "".join(f"data: {text}{newline}{newline}" for text in texts).encode()


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[begin : begin + size] for begin in range(0, len(content), size)]


def answer_with(page, chunks: list[bytes], *, is_to_go_on: bool = False) -> None:
    """Answer each chat request of this page with these chunks (requests.js)."""
    script = "([chunks, isToGoOn]) => requests.answerWith(chunks, isToGoOn)"
    page.evaluate(script, [[list(one) for one in chunks], is_to_go_on])


def go_on_with(page, chunks: list[bytes]) -> None:
    """Send more of the answer that was to go on."""
    page.evaluate("chunks => requests.goOnWith(chunks)", [list(one) for one in chunks])
