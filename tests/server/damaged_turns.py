"""One turn through the presenters of the four interfaces, as a client reads what they write."""

import json
from types import SimpleNamespace

from glm_engine.core.requests import Request
from glm_engine.server.anthropic.message_events import MessagePresenter, MessageTurn
from glm_engine.server.choices import Choice, Turn
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.http.streaming import chunks_of
from glm_engine.server.openai.chat_completions import ChatPresenter
from glm_engine.server.openai.completions import CompletionPresenter
from glm_engine.server.openai.responses.response_events import ResponsePresenter
from glm_engine.server.openai.responses.response_fields import ResponsesRequest
from glm_engine.text.dialogue import DialogueParser
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import IncrementalDetokenizer
from tests.python.text.dialogue.damage import TOOLS, is_open

STOP = "\u241e"
SERVICE = SimpleNamespace(model_name="glm", defaults={"temperature": 1.0, "top_p": 1.0})
ASKED = ResponsesRequest.model_validate({"model": "glm", "input": "x"})


def choice_of(pieces):
    table = dict(enumerate(piece.encode() for piece in pieces))
    return Choice(
        index=0,
        request=Request([1]),
        detokenizer=IncrementalDetokenizer(table.get),
        matcher=StopMatcher([STOP]),
        ending_ids=frozenset({len(pieces)}),
    )


def asked(**fields):
    return SimpleNamespace(
        stream_options=None, return_token_ids=None, prompt_logprobs=None, **fields
    )


def chat(job, in_reasoning, is_streamed):
    fields = asked(stream=is_streamed, logprobs=False, prediction=None)
    return ChatPresenter(SERVICE, job, fields, [Turn(DialogueParser(in_reasoning, TOOLS))])


def completions(job, _in_reasoning, is_streamed):
    fields = asked(stream=is_streamed, logprobs=None)
    return CompletionPresenter(SERVICE, job, fields, [None])


def responses(job, in_reasoning, _is_streamed):
    return ResponsePresenter(SERVICE, job, ASKED, Turn(DialogueParser(in_reasoning, TOOLS)))


def messages(job, in_reasoning, _is_streamed):
    return MessagePresenter(SERVICE, job, MessageTurn(DialogueParser(in_reasoning, TOOLS)))


def told(make, pieces, reason, in_reasoning, is_streamed):
    """Give the pieces as tokens of a choice that ends for a reason; return the bytes."""
    choice = choice_of(pieces)
    job = SimpleNamespace(
        record=RequestRecord("/", prompt_tokens=1), choices=[choice], complete=None
    )
    presenter = make(job, in_reasoning, is_streamed)
    give = presenter.event if is_streamed else presenter.take
    told = [presenter.opening()] if is_streamed and hasattr(presenter, "opening") else []
    for token in range(len(pieces)):
        choice.arrived.append(token)
        told.append(give(choice, next(choice.advance())))
        if choice.finish_reason:
            break
    if not choice.finish_reason:
        choice.ending = (reason, 0, "")
        told.append(give(choice, next(choice.advance())))
    texts = [*told, presenter.closing()] if is_streamed else [presenter.body()]
    return b"".join(chunks_of(*texts))


def events(stream):
    lines = [line for line in stream.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def read_chat(body):
    [choice] = json.loads(body)["choices"]
    message = choice["message"]
    calls = [one["function"] for one in message.get("tool_calls", ())]
    thought = message.get("reasoning_content", "")
    made = [(one["name"], one["arguments"]) for one in calls]
    return made, choice["finish_reason"], thought + (message["content"] or "")


def read_chat_stream(stream):
    calls, text, reason = [], "", None
    for event in events(stream):
        [choice] = event["choices"]
        delta, reason = choice["delta"], choice["finish_reason"]
        text += delta.get("reasoning_content", "") + (delta.get("content") or "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    whole = [(name, arguments) for name, arguments in calls if not is_open(arguments)]
    assert reason != "tool_calls" or len(whole) == len(calls) > 0
    return whole, reason, text


def read_items(response):
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert all(call["status"] == "completed" for call in calls)
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    made = [(call["name"], call["arguments"]) for call in calls]
    return made, response["status"], "".join(part["text"] for part in parts)


def read_responses(body):
    return read_items(json.loads(body))


def read_responses_stream(stream):
    found = events(stream)
    ends = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    calls = [item for item in ends if item["type"] == "function_call"]
    made = [(one["name"], one["arguments"]) for one in calls if one["status"] == "completed"]
    assert all(is_open(one["arguments"]) for one in calls if one["status"] != "completed")
    finished = [one for one in found if one["type"].endswith("function_call_arguments.done")]
    assert [one["arguments"] for one in finished] == [arguments for _, arguments in made]
    read = read_items(found[-1]["response"])
    assert read[0] == made
    return read


def read_messages(body):
    message = json.loads(body)
    blocks = message["content"]
    calls = [(one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"]
    text = "".join(one.get("text") or one.get("thinking") or "" for one in blocks)
    return calls, message["stop_reason"], text


def read_messages_stream(stream):
    calls, text, reason = {}, "", None
    for event in events(stream):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls[event["index"]] = [event["content_block"]["name"], ""]
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            text += delta.get("text", "") + delta.get("thinking", "")
            if "partial_json" in delta:
                calls[event["index"]][1] += delta["partial_json"]
        elif event["type"] == "message_delta":
            reason = event["delta"]["stop_reason"]
    whole = [(name, json.loads(text)) for name, text in calls.values() if not is_open(text)]
    assert reason != "tool_use" or len(whole) == len(calls) > 0
    return whole, reason, text


def read_completion(body):
    [choice] = json.loads(body)["choices"]
    return [], choice["finish_reason"], choice["text"]


def read_completion_stream(stream):
    choices = [event["choices"][0] for event in events(stream)]
    return [], choices[-1]["finish_reason"], "".join(choice["text"] for choice in choices)


INTERFACES = {
    "chat": (chat, read_chat, read_chat_stream),
    "completions": (completions, read_completion, read_completion_stream),
    "responses": (responses, read_responses, read_responses_stream),
    "messages": (messages, read_messages, read_messages_stream),
}
ASKING = {"tool_calls", "tool_use"}


def read_everywhere(random, text, reason, in_reasoning, pieces_of):
    """Return the calls, names and objects, that all agree on, and whether they ask for them."""
    found, asking = {}, []
    for name, (make, read, read_stream) in INTERFACES.items():
        streamed = read_stream(told(make, pieces_of(random, text), reason, in_reasoning, True))
        whole = read(told(make, pieces_of(random, text), reason, in_reasoning, False))
        assert streamed == whole, (name, streamed, whole)
        if name != "completions":
            found[name] = [(one, as_object(arguments)) for one, arguments in whole[0]]
        if whole[1] in ASKING:
            asking.append(name)
    assert found["chat"] == found["responses"] == found["messages"]
    assert asking in ([], ["chat", "messages"])
    return found["chat"], bool(asking)


def as_object(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments
