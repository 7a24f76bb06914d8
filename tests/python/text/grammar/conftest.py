from collections.abc import Iterator

import pytest

from tests.python.text.grammar.walks import EagerCompiler, compiler_of_capitals


@pytest.fixture(scope="session")
def compiler() -> Iterator[EagerCompiler]:
    found = compiler_of_capitals()
    yield found
    found.close()
