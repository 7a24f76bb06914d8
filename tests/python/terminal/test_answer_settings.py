"""Values that a user sets by name."""

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.terminal.answer_settings import Settings

REFUSED = [
    ("temperature", "hot"),
    ("temperature", "nan"),
    ("temperature", "-1"),
    ("top_p", "1.5"),
    ("top_k", "-1"),
    ("presence_penalty", "2.1"),
    ("seed", "18446744073709551616"),
    ("max_tokens", "0"),
    ("stop", "a"),
]


def test_values_are_set_and_taken_back():
    settings = Settings()
    settings.change("temperature", "0.5")
    settings.change("seed", "18446744073709551615")
    assert settings.sampling == {"temperature": 0.5, "seed": 2**64 - 1}
    assert {"temperature = 0.5", "top_p = default"} <= set(settings.lines())
    settings.change("temperature", "default")
    assert settings.sampling == {"seed": 2**64 - 1}


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_is_refused_changes_nothing(name, text):
    settings = Settings({"temperature": 0.5})
    with pytest.raises(BadInputError, match=f"^/set {name}: "):
        settings.change(name, text)
    assert settings.sampling == {"temperature": 0.5}
