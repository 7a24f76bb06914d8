"""The context length and batch that the engine chose, as text.

`sizes` is what `plan` returns or what `Engine.info` does.
"""

CUT = ("num_pages", "memory")
REASONS = {
    "option": "as requested",
    "model": "the model's maximum",
    "default": "the default",
    "num_pages": "limited by --num-pages",
    "memory": "limited by memory",
}


def context_line(sizes):
    """Return the maximum tokens of one request, and what limits them."""
    source, own = sizes["max_seq_from"], sizes["model_max_seq"]
    rest = "" if source == "model" else f" (the model's maximum is {own:,})"
    return f"{sizes['max_seq']:,} tokens, {REASONS[source]}{rest}"


def batch_line(sizes):
    """Return the maximum requests of one forward pass, and what limits them."""
    return f"{sizes['max_batch']:,}, {REASONS[sizes['max_batch_from']]}"


def cut_line(sizes):
    """Return a line if the context is shorter than the model's and nobody requested that."""
    return f"context length: {context_line(sizes)}" if sizes["max_seq_from"] in CUT else None
