"""The checkpoint's template gives the text that transformers renders."""

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.text.template import ChatTemplate
from tests import groups
from tests.python.text.test_template import CONVERSATIONS

transformers = groups.imported("transformers")


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_same_text_as_transformers(messages, add_generation_prompt):
    theirs = transformers.AutoTokenizer.from_pretrained(CAPITALS).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    assert ChatTemplate(CAPITALS).render(messages, add_generation_prompt) == theirs
