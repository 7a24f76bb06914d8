"""What a response says of its request, at every stage."""

import time

from glm_engine.server.requests import value_or

ONLY_TEXT = {"type": "text"}


def what_was_asked(service, job, fields):
    """Return the names of a response and the fields of its request, defaults filled in."""
    defaults = service.defaults
    return {
        "id": f"resp_{job.visit.request_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": service.model_name,
        "background": False,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": fields.prompt_cache_key,
        "reasoning": {"effort": fields.reasoning_effort, "summary": None},
        "safety_identifier": fields.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": value_or(fields.temperature, defaults["temperature"]),
        "text": {"format": format_of(fields.text), "verbosity": fields.verbosity},
        "tool_choice": choice_of(fields.tool_choice),
        "tools": [tool.model_dump() for tool in fields.tools or ()],
        "top_logprobs": value_or(fields.top_logprobs, 0),
        "top_p": value_or(fields.top_p, defaults["top_p"]),
        "truncation": "disabled",
        "user": fields.user,
    }


def format_of(text):
    if text is None or text.format is None:
        return ONLY_TEXT
    return text.format.model_dump(by_alias=True, exclude_none=True)


def choice_of(choice):
    return (choice or "auto") if isinstance(choice, str | None) else choice.model_dump()
