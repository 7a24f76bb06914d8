"""Events of the log as text for people at a terminal."""

from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import TimeStamper, format_exc_info

from glm_engine.core.console import printable, terminal_text

EXCEPTION = "exception"
BLOCK = (
    ("Model", "{model}"),
    ("Device", "{device}"),
    ("GPUs", "{gpus}"),
    ("Context length", "{context_length:,} tokens"),
    ("KV cache", "{kv_cache_tokens:,} tokens; requests at full context: {kv_cache_requests:,}"),
    ("Speculate", "{speculation}"),
    ("API", "{api}"),
    ("Page", "{page}"),
    ("API keys", "{api_keys}{key_sources}"),
)
WIDTH = 16
THROUGHPUT = (
    "Requests running: {running}, waiting: {waiting}, "
    "prompt: {prompt_tokens_per_second:,} tokens/s, "
    "generated: {generated_tokens_per_second:,} tokens/s, "
    "KV cache usage: {kv_cache_usage_percent}%, "
    "prefix cache hit rate: {prefix_cache_hit_rate_percent}%"
)
REQUEST = '{client} "{method} {path}" {status}'
SENTENCES = {
    "throughput": (THROUGHPUT, ()),
    "request": (REQUEST, ("endpoint",)),
}


def start_block(fields):
    """Return the lines that say what is served."""
    told = fields | devices(fields) | keys(fields) | {"speculation": speculation(fields)}
    rows = [(name, form.format(**told)) for name, form in BLOCK]
    return "".join(f"  {name:<{WIDTH}}{printable(text)}\n" for name, text in rows)


def devices(fields):
    """Return the texts of the device and of the GPUs."""
    name, count = fields["device_name"], fields["world_size"]
    if fields["gpus"]:
        return {"device": "CUDA", "gpus": f"{count} x {name}"}
    device = name if count == 1 else f"{count} CPU ranks, {name.removeprefix('CPU, ')}"
    return {"device": device, "gpus": "none"}


def speculation(fields):
    """Return how drafts are made, and whether the prediction layer is loaded for it."""
    stated = fields["speculate"]
    if fields["num_prediction_layers"]:
        return f"{stated} (prediction layer loaded)"
    return f"{stated} (no prediction layer)" if stated == "auto" else stated


def keys(fields):
    """Return the texts of the number of API keys and of where they come from."""
    sources = ", ".join(fields["api_keys_from"])
    return {
        "api_keys": fields["api_keys"] or "none",
        "key_sources": f" (from {sources})" if sources else "",
    }


def as_sentence(_logger, _method, event):
    """Put the fields of an event that has a sentence into it; the others follow it."""
    form, implied = SENTENCES.get(event["event"], (None, ()))
    if form is None:
        return event
    used = {name: event[name] for name in event if f"{{{name}" in form}
    rest = {name: value for name, value in event.items() if name not in (*used, *implied)}
    return {**rest, "event": form.format(**used)}


def without_controls(_logger, _method, event):
    """Spell out what a terminal would obey: clients write paths and parts of messages."""
    return {name: spelt_out(name, value) for name, value in event.items()}


def spelt_out(name, value):
    if not isinstance(value, str):
        return value
    return terminal_text(value) if name == EXCEPTION else printable(value)


def encoded(_logger, _method, text):
    return text.encode("utf-8", "backslashreplace")


def processors(has_colours):
    """Return what makes a line of an event, after its level is known."""
    return [
        TimeStamper(fmt="%m-%d %H:%M:%S", utc=False),
        format_exc_info,
        as_sentence,
        without_controls,
        ConsoleRenderer(
            colors=has_colours,
            pad_event_to=0,
            pad_level=False,
            sort_keys=False,
            exception_formatter=plain_traceback,
        ),
        encoded,
    ]
