"""Draft tokens of the prediction layer over the ledger: whose they are, and when they are used."""

import random

import pytest

from glm_engine.core.requests import Event, Request, Sampling
from tests.engine.ledger import Ledger, ends_of, expected_tokens, outputs_of
from tests.engine.masking import mask_of

AUTO, MTP = 2, 3
VOCAB = 97
BOTH_COURSES = pytest.mark.parametrize("plans_ahead", [0, 1])
NUM_REQUESTS = 12


def layer(percent: int = 100, speculate: int = MTP, **options) -> Ledger:
    """A ledger whose layer drafts so many tokens of a hundred right."""
    chosen = {"max_draft_tokens": 1, "max_logit_rows": 16, "max_draft_rows": 8, **options}
    return Ledger(speculate=speculate, layer_percent=percent, **chosen)


def one_request(num_tokens: int = 40, **options) -> Request:
    return Request([1, 2, 3], max_tokens=num_tokens, ignore_eos=True, **options)


def requests_of(draw: random.Random) -> list[Request]:
    """Prompts of several pages, greedy and sampled, with and without penalties."""
    return [
        Request(
            [draw.randrange(90) for _ in range(draw.randrange(1, 20))],
            max_tokens=draw.randrange(1, 30),
            ignore_eos=True,
            sampling=Sampling(
                temperature=draw.choice([0.0, 0.9]),
                seed=draw.randrange(2**40),
                frequency_penalty=draw.choice([0.0, 0.5]),
            ),
        )
        for _ in range(NUM_REQUESTS)
    ]


@BOTH_COURSES
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 17])
def test_right_drafts_save_every_other_step(num_tokens, plans_ahead):
    request = one_request(num_tokens)
    with layer(plans_ahead=plans_ahead) as ledger:
        request_id = ledger.submit(request)
        assert outputs_of(ledger.run())[request_id] == expected_tokens(request)
        info = ledger.info()
        assert ledger.drafted()["row"] <= num_tokens // 2
    assert info["num_steps"] <= 2 + (num_tokens - 1) // 2
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] >= (num_tokens - 1) // 2


@BOTH_COURSES
def test_wrong_drafts_cost_no_step(plans_ahead):
    request = one_request(9)
    with layer(percent=0, plans_ahead=plans_ahead) as ledger:
        request_id = ledger.submit(request)
        assert outputs_of(ledger.run())[request_id] == expected_tokens(request)
        info = ledger.info()
    assert (info["num_steps"], info["num_accepted_tokens"]) == (9, 0)
    assert 5 < info["num_draft_tokens"] <= 7


@BOTH_COURSES
@pytest.mark.parametrize("speculate", [AUTO, MTP])
@pytest.mark.parametrize("prefill_chunk", [0, 3])
def test_each_draft_is_of_its_own_sequence_and_position(
    prefill_chunk, speculate, plans_ahead, record_property
):
    """Right drafts stay right between requests that come, end, and are preempted."""
    seed = random.randrange(2**32)
    record_property("seed", seed)
    draw = random.Random(seed)
    requests = requests_of(draw)
    options = {"num_pages": 30, "prefill_chunk": prefill_chunk, "prefix_cache": 1}
    with layer(plans_ahead=plans_ahead, speculate=speculate, **options) as ledger:
        ids, events = [], []
        for request in requests:
            ids.append(ledger.submit(request))
            for _ in range(draw.randrange(4)):
                ledger.iterate()
                events += ledger.poll_all()
            live = sorted(set(ids) - set(ends_of(events)))
            if live:
                ledger.preempt(draw.choice(live))
        outputs, info = outputs_of(events + ledger.run()), ledger.info()
    assert [outputs[one] for one in ids] == [expected_tokens(one) for one in requests]
    assert info["num_preemptions"] > 0
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 20


class MaskGiver:
    """Gives the mask of the next token, and with `looks_ahead` the one behind an offered draft."""

    def __init__(self, ledger: Ledger, request_id: int, looks_ahead: bool):
        self.ledger, self.request_id, self.looks_ahead = ledger, request_id, looks_ahead
        self.outputs, self.draft, self.num_given = [], -1, 1

    def take(self, event: Event) -> None:
        if self.draft != event.token_id:
            self.num_given = len(self.outputs) + 1
        self.outputs.append(event.token_id)
        self.draft = event.drafts[0] if event.drafts and self.looks_ahead else -1

    def give(self) -> None:
        index = len(self.outputs)
        masks = [(self.request_id, index, None)]
        if self.draft >= 0:
            masks.append((self.request_id, index + 1, None, 1, self.draft))
        self.ledger.set_masks([mask for mask in masks if mask[1] >= self.num_given])
        self.num_given = max(self.num_given, index + len(masks))


def masked_course(looks_ahead: bool, **options) -> dict:
    """The counts of a masked request, none of whose masks forbids a token."""
    request = one_request(mask=mask_of(range(VOCAB), VOCAB))
    with layer(**options) as ledger:
        giver = MaskGiver(ledger, ledger.submit(request), looks_ahead)
        for _ in range(200):
            ledger.iterate()
            for event in ledger.poll_all():
                if event.ends_request:
                    assert giver.outputs == expected_tokens(request)
                    return ledger.info()
                giver.take(event)
            if len(giver.outputs) < request.max_tokens:
                giver.give()
    raise AssertionError(f"the request has {len(giver.outputs)} tokens after 200 steps")


@BOTH_COURSES
@pytest.mark.parametrize("speculate", [AUTO, MTP])
def test_a_masked_request_takes_drafts_whose_masks_come_with_the_token(speculate, plans_ahead):
    info = masked_course(True, plans_ahead=plans_ahead, speculate=speculate)
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 11
    assert info["num_steps"] < 29


@BOTH_COURSES
def test_a_draft_without_its_mask_is_dropped(plans_ahead):
    info = masked_course(False, plans_ahead=plans_ahead)
    assert (info["num_draft_tokens"], info["num_steps"]) == (0, 40)
    assert info["num_dropped_rows"] > 30


@BOTH_COURSES
def test_auto_stops_to_draft_where_no_mask_comes_behind_the_drafts(plans_ahead):
    info = masked_course(False, plans_ahead=plans_ahead, speculate=AUTO, row_us=1000, step_us=1000)
    assert (info["num_draft_tokens"], info["num_steps"]) == (0, 40)
    assert 0 < info["num_dropped_rows"] < 15
