"""The trained prediction layer of capitals drafts what the model itself says."""

import numpy as np
import pytest

from tests.reference.capitals import CAPITALS, countries, tokenizer
from tests.reference.checkpoint import read_checkpoint
from tests.reference.drafts import Agreement, facts, measure_drafts
from tests.reference.model import Options
from tests.reference.prediction import read_prediction_model

ASKED = 15
GOAL = 0.80


@pytest.fixture(scope="module")
def agreement() -> Agreement:
    encode, entries = tokenizer(), countries()
    model = read_prediction_model(read_checkpoint(CAPITALS), Options(np.float32))
    chosen = entries[:: len(entries) // ASKED]
    return measure_drafts(model, [text for entry in chosen for text in facts(encode, entry)])


def test_drafts_in_answers_are_the_models_own(agreement):
    assert agreement.greedy_in_answers >= GOAL


def test_drafts_in_answers_survive_temperature_1(agreement):
    assert agreement.sampled_in_answers >= GOAL


def test_drafts_of_prompts_and_answers_together(agreement):
    assert agreement.greedy >= GOAL
