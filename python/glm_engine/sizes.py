"""Context and batch as the engine chose them, said in a line.

`sizes` is what `plan` returns or what `Engine.info` does.
"""

CUT = ("num_pages", "memory")
REASONS = {
    "option": "as asked",
    "model": "the model's own positions",
    "default": "the default",
    "num_pages": "num_pages holds no more",
    "memory": "the memory holds no more",
}


def context_line(sizes):
    """Return the tokens that one request may have, and why so many."""
    source, own = sizes["max_seq_from"], sizes["model_max_seq"]
    rest = "" if source == "model" else f" (the model's own positions: {own:,})"
    return f"{sizes['max_seq']:,} tokens a request: {REASONS[source]}{rest}"


def batch_line(sizes):
    """Return the requests of one step, and why so many."""
    return f"{sizes['max_batch']:,} requests in a step: {REASONS[sizes['max_batch_from']]}"


def cut_line(sizes):
    """Return the context in a line where nobody asked and the model has more; else None."""
    return f"context {context_line(sizes)}" if sizes["max_seq_from"] in CUT else None
