"""The prediction layer learns from a frozen model, and its file leaves that model as it was."""

from importlib import import_module

import pytest

from tests import groups
from tools.checkpoint.random_model import small_config, write_random_model

torch = groups.imported("torch")
groups.imported("transformers")
training = import_module("tools.checkpoint.training")
train_prediction = import_module("tools.checkpoint.train_prediction")
verify = import_module("tools.checkpoint.verify")

SENTENCE = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def folder(tmp_path):
    config = small_config(num_hidden_layers=2, num_nextn_predict_layers=1)
    write_random_model(tmp_path, config, seed=1, num_shards=3)
    return tmp_path


def own_bytes(folder) -> dict[str, bytes]:
    tensors = verify.read_tensors(folder)
    return {name: t.contiguous().view(torch.uint8).numpy().tobytes() for name, t in tensors.items()}


def test_only_the_layer_changes_on_disk(folder):
    before = own_bytes(folder)
    layer = train_prediction.new_layer(verify.plain_model(folder), seed=0)
    train_prediction.write_layer(folder, layer.state_dict())
    after = own_bytes(folder)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {name for name in before if name.startswith("model.layers.2.")}


def test_the_layer_learns_and_the_model_stays(folder):
    model = verify.plain_model(folder).requires_grad_(False)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    layer, teacher = train_prediction.new_layer(model, seed=0), train_prediction.Teacher(model)
    schedule = training.Schedule(60, tokens_per_step=32, row_length=2, learning_rate=1e-2)
    rows = {n: iter([SENTENCE[:n]] * 1000) for n in (2, 8)}
    losses = []

    def report(_step: int, loss: float, **_: float) -> None:
        losses.append(loss)

    training.train(layer, rows, schedule, report, teacher.loss)
    assert losses[-1] < losses[0] / 2
    assert teacher.agreement(layer, torch.tensor([SENTENCE[:2]])) == 1.0
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(layer.embed_tokens.weight, model.model.embed_tokens.weight)


def test_the_best_weights_are_kept():
    layer, best = torch.nn.Linear(1, 1), train_prediction.Best()
    best.offer(layer, 0.5)
    first = layer.weight.item()
    with torch.no_grad():
        layer.weight.fill_(7.0)
    best.offer(layer, 0.4)
    assert best.state["weight"].item() == first
    best.offer(layer, 0.6)
    assert best.state["weight"].item() == 7.0
