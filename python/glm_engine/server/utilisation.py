"""How much of its batch and its KV cache an engine uses, by what `Engine.info` says."""


def kv_utilisation(info):
    """Return the share of the KV pages that requests own, 0 to 1."""
    return info["owned_pages"] / max(1, info["total_pages"])


def running_requests(info):
    """Return how many requests are in steps."""
    return max(0, info["live_requests"] - info["waiting_requests"])


def batch_occupancy(info):
    """Return the share of `max_batch` that the requests in steps take, 0 to 1."""
    return running_requests(info) / max(1, info["max_batch"])
