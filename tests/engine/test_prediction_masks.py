"""A mask that comes too late, beside the prediction layer's drafts."""

import pytest

from tests.engine.masking import MAX_TOKENS, asked, everything
from tests.engine.running import Finished, open_engine, run_requests, take
from tests.reference.capitals import CAPITALS


@pytest.mark.parametrize("plan_ahead", [False, True])
def test_a_late_mask_leaves_every_request_its_tokens(plan_ahead):
    """The row of the late mask is drawn again, and the drafts of its step are left out."""
    requests = [asked(0), asked(1)]
    options = {"max_batch": 2, "max_seq": 96, "plan_ahead": plan_ahead}
    with open_engine(CAPITALS, speculate="mtp", **options) as engine:
        plain = run_requests(engine, requests)
        full = everything(engine.vocab_size)([])
        late = engine.submit(asked(0, mask=full))
        found = {late: Finished(), engine.submit(asked(1)): Finished()}
        num_ended, num_given = 0, 1
        while num_ended < 2:
            engine.wait(0.1)
            num_ended += sum(take(event, found) for event in engine.poll())
            if num_ended == 1 and len(found[late].tokens) == num_given < MAX_TOKENS:
                engine.set_masks([(late, num_given, None)])
                num_given += 1
        info = engine.info()
    assert info["num_late_masks"] > 0
    assert info["num_draft_tokens"] > 0
    assert [each.tokens for each in found.values()] == [each.tokens for each in plain]
