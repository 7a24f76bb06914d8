from importlib import import_module

import pytest

from tests import groups
from tools.checkpoint.random_model import small_config

torch = groups.imported("torch")
groups.imported("transformers")
training = import_module("tools.checkpoint.training")

TINY = small_config(
    fp8=False, num_hidden_layers=2, vocab_size=32, hidden_size=32, num_attention_heads=4
)
SENTENCE = [3, 1, 4, 1, 5, 9, 2, 6]


def endless(row):
    while True:
        yield row


def test_learning_rate_warms_up_and_then_falls():
    schedule = training.Schedule(num_steps=200, learning_rate=1.0)
    rates = [schedule.learning_rate_at(step) for step in range(200)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(1.0)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0.04 < rates[-1] < 0.06


@pytest.mark.parametrize("num_steps", [0, 1])
def test_the_shortest_schedules(num_steps):
    model = training.new_model(TINY, seed=0)
    schedule = training.Schedule(num_steps, tokens_per_step=32, row_length=2)
    rows = {n: endless(SENTENCE[:n]) for n in (2, 8)}
    steps = []
    training.train(model, rows, schedule, lambda step, **_: steps.append(step))
    assert steps == list(range(num_steps))


def test_a_small_model_learns_one_sentence():
    model = training.new_model(TINY, seed=0)
    schedule = training.Schedule(60, tokens_per_step=32, row_length=2, learning_rate=1e-2)
    rows = {n: endless(SENTENCE[:n]) for n in (2, 8)}
    losses = []
    training.train(model, rows, schedule, lambda _, loss, **__: losses.append(loss))
    assert losses[-1] < losses[0] / 2


def test_balance_moves_the_selection_bias_against_the_load():
    model = training.new_model(TINY, seed=0)
    balance = training.RouterBalance(model)
    balance.loads[0] = torch.tensor([9.0, 1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    balance.step()
    bias = model.model.layers[1].mlp.gate.e_score_correction_bias
    assert bias[0] == pytest.approx(-training.ROUTER_BIAS_STEP)
    assert bias[1] == pytest.approx(training.ROUTER_BIAS_STEP)
    assert not bias[2:].any()


def test_margin_is_above_zero_only_where_greedy_is_right():
    model = training.new_model(TINY, seed=0)
    logits = model(torch.tensor([SENTENCE])).logits[0, -1].detach()
    best, second = logits.topk(2).indices.tolist()
    right = training.Answer(SENTENCE, [best])
    wrong = training.Answer(SENTENCE, [second])
    margins = training.answer_margins(model, [right, wrong])
    assert margins[0] == pytest.approx(float(logits[best] - logits[second]), abs=1e-5)
    assert margins[1] == pytest.approx(-margins[0], abs=1e-5)
