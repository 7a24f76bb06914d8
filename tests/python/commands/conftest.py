import pytest

from glm_engine.cli.options import CAPITALS
from tools.checkpoint.random_model import small_config, write_random_model


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    write_random_model(folder, small_config(vocab_size=2048), seed=3)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((CAPITALS / name).read_bytes())
    return folder
