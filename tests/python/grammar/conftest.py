from collections.abc import Iterator

import pytest

from glm_engine.grammar import GrammarCompiler
from tests.python.grammar.walks import compiler_of_capitals


@pytest.fixture(scope="session")
def compiler() -> Iterator[GrammarCompiler]:
    found = compiler_of_capitals()
    yield found
    found.close()
