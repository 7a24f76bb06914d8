"""From the fields of a request to the engine's: defaults, seeds, ends."""

import secrets
from array import array

from glm_engine.core.requests import Request, Sampling
from glm_engine.server.errors import ApiError, quoted
from glm_engine.server.fields import MAX_BIASES, NO_SEED, SEED_MASK
from glm_engine.server.generation import Choice
from glm_engine.server.prompts import outside_vocabulary
from glm_engine.text.detokenizer import StopMatcher
from glm_engine.text.dialogue import AnswerFinder

NANOSECONDS = 1_000_000_000
PRIORITY = "priority"


def check_model(service, name):
    """Refuse a model that is not served; no name at all means the one that is."""
    if name and name not in service.model_names:
        known = ", ".join(map(repr, service.model_names))
        message = f"the model {quoted(name)} does not exist; available models: {known}"
        raise ApiError(404, message, "model", "model_not_found")


def check_count(service, num_prompts, n):
    """Refuse more choices than one request may have, so that it cannot fill the queue alone."""
    count = num_prompts * value_or(n, 1)
    most = min(service.settings.max_choices, service.gate.most_inside)
    if count > most:
        message = f"n: expected at most {most} choices (prompts times n), got {count}"
        raise ApiError(400, message, "n")


def priority_of(service, fields):
    """Return the engine's priority: its greater goes first, a client's lower, as in vLLM."""
    priority = value_or(fields.priority, 0)
    if priority and service.settings.scheduling_policy != PRIORITY:
        message = "priority: expected 0, because the server runs with --scheduling-policy fcfs"
        raise ApiError(400, message, "priority")
    return -priority


def value_or(value, otherwise):
    return otherwise if value is None else value


def sampling_of(service, fields, seed, num_logprobs):
    defaults = service.defaults
    return Sampling(
        temperature=value_or(fields.temperature, defaults["temperature"]),
        top_p=value_or(fields.top_p, defaults["top_p"]),
        min_p=value_or(fields.min_p, defaults["min_p"]),
        top_k=max(0, value_or(fields.top_k, defaults["top_k"])),
        repetition_penalty=value_or(fields.repetition_penalty, defaults["repetition_penalty"]),
        frequency_penalty=value_or(fields.frequency_penalty, 0.0),
        presence_penalty=value_or(fields.presence_penalty, 0.0),
        num_logprobs=num_logprobs,
        seed=seed,
    )


def deadline_of(service, fields, visit):
    """Return nanoseconds of CLOCK_MONOTONIC, counted from the request's arrival; 0 for none."""
    limits = (fields.timeout_seconds, service.settings.request_seconds)
    seconds = min((one for one in limits if one), default=None)
    return 0 if seconds is None else int((visit.began + seconds) * NANOSECONDS)


def stop_ids(service, fields):
    endings = frozenset() if fields.ignore_eos else service.ending_ids
    return endings | frozenset(fields.stop_token_ids or ())


def check_token_ids(service, fields):
    """Refuse ids outside the vocabulary, and more of them than a step has room for."""
    for name in ("stop_token_ids", "logit_bias"):
        wrong = [one for one in getattr(fields, name) or () if one >= service.vocab_size]
        if wrong:
            message = f"{name}: {outside_vocabulary(wrong[0], service.vocab_size)}"
            raise ApiError(400, message, name)
    forbidden = stop_ids(service, fields) if fields.min_tokens else frozenset()
    if len(forbidden.union(fields.logit_bias or ())) > MAX_BIASES:
        message = (
            f"logit_bias: its token ids and the {len(forbidden)} end-of-text ids that min_tokens "
            f"suppresses exceed {MAX_BIASES}"
        )
        raise ApiError(400, message, "logit_bias")


def seed_of(fields):
    """Return the seed of the first choice: a fresh one where the client names none."""
    return secrets.randbits(64) if fields.seed in (None, NO_SEED) else fields.seed


def make_choices(
    service, fields, visit, prompt, max_tokens, num_logprobs, rules, first_index=0, layout=None
):
    """Return the `n` choices of one prompt; the k-th draws with seed + k.

    rules: fields of the engine's request, from `token_rules`.
    layout: how a turn begins that may hold a thought, from `layout_of`.
    """
    min_tokens = value_or(fields.min_tokens, 0)
    if min_tokens > max_tokens:
        message = (
            f"min_tokens ({min_tokens}) is greater than the maximum output of {max_tokens} tokens"
        )
        raise ApiError(400, message, "min_tokens")
    check_token_ids(service, fields)
    prompt, seed = array("i", prompt), seed_of(fields)
    deadline_ns, priority = deadline_of(service, fields, visit), priority_of(service, fields)
    return [
        Choice(
            index=first_index + number,
            request=Request(
                prompt,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                sampling=sampling_of(service, fields, (seed + number) & SEED_MASK, num_logprobs),
                ignore_eos=bool(fields.ignore_eos),
                stop_tokens=tuple(fields.stop_token_ids or ()),
                biases=fields.logit_bias or {},
                priority=priority,
                deadline_ns=deadline_ns,
                **rules,
            ),
            detokenizer=service.tokenizer.detokenizer(fields.skip_special_tokens is not False),
            matcher=matcher_of(fields, layout),
            ending_ids=stop_ids(service, fields),
            cutting_ids=frozenset(fields.stop_token_ids or ()) - service.ending_ids,
            shows_ending=bool(fields.include_stop_str_in_output),
            counts_prompt=number == 0,
        )
        for number in range(value_or(fields.n, 1))
    ]


def matcher_of(fields, layout):
    if not fields.stop:
        return None
    finder = None if layout is None else AnswerFinder(**layout)
    return StopMatcher(fields.stop, bool(fields.include_stop_str_in_output), finder)
