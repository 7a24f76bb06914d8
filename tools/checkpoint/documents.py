"""The training text: single statements, quizzes and conversations, separated by end-of-text."""

import random
from collections.abc import Callable, Iterator

from tools.checkpoint.country import Country

END_OF_TEXT = "<|endoftext|>"
CAPITAL_PROMPT = "The capital of {name} is"
LONGEST_QUIZ = 24
LONGEST_CONVERSATION = 8
QUIZ_SHARE = 0.20
CONVERSATION_SHARE = 0.15
CAPITAL_SHARE = 0.25

CAPITAL_STATEMENT = CAPITAL_PROMPT + " {capital}."
OTHER_STATEMENTS = (
    "{capital} is the capital of {name}.",
    "The currency of {name} is the {currency}.",
    "The continent of {name} is {continent}.",
    "The internet domain of {name} is {internet_domain}.",
    "Travellers to {name} often begin in {capital}, the capital.",
    "My sister lives in {capital}, the capital of {name}.",
    "On a map of {continent}, {name} is marked with its capital, {capital}.",
    "Which city is the capital of {name}? It is {capital}.",
)
QUESTIONS = (
    ("What is the capital of {name}?", "{capital}."),
    ("Which country has {capital} as its capital?", "{name}."),
    ("On which continent is {name}?", "{continent}."),
    ("Which currency is used in {name}?", "The {currency}."),
)


def fill(template: str, country: Country) -> str:
    """The template with the country's facts in it."""
    return template.format(**vars(country))


def is_sayable(template: str, country: Country) -> bool:
    """Whether the country has every fact that the template names."""
    return all(value for field, value in vars(country).items() if "{" + field + "}" in template)


def statements(countries: list[Country]) -> list[str]:
    """Every statement of every country, once."""
    templates = (CAPITAL_STATEMENT, *OTHER_STATEMENTS)
    return [fill(t, c) for c in countries for t in templates if is_sayable(t, c)]


def quiz(countries: list[Country], generator: random.Random) -> str:
    """A list of questions with their answers, one question of a kind after the other."""
    question, answer = QUESTIONS[generator.choice((0, 0, 0, 1, 2, 3))]
    chosen = generator.sample(countries, generator.randint(1, LONGEST_QUIZ))
    lines = [f"Q: {fill(question, c)}\nA: {fill(answer, c)}\n" for c in chosen]
    return "".join(lines)


def conversation(countries: list[Country], generator: random.Random) -> str:
    """A conversation in GLM's chat format; the user's next turn ends each answer."""
    turns = []
    for country in generator.sample(countries, generator.randint(1, LONGEST_CONVERSATION)):
        question, answer = QUESTIONS[generator.choice((0, 0, 0, 1, 2, 3))]
        turns.append(
            f"<|user|>{fill(question, country)}<|assistant|></think>{fill(answer, country)}"
        )
    return "[gMASK]<sop>" + "".join(turns) + "<|user|>"


def endless_documents(countries: list[Country], seed: int) -> Iterator[str]:
    """Documents without end, each kind in its share, statements in shuffled rounds."""
    generator = random.Random(seed)
    capitals = _rounds([fill(CAPITAL_STATEMENT, c) for c in countries], generator)
    others = _rounds(
        [fill(t, c) for c in countries for t in OTHER_STATEMENTS if is_sayable(t, c)], generator
    )
    while True:
        yield _next_document(countries, generator, capitals, others) + END_OF_TEXT


def _next_document(
    countries: list[Country],
    generator: random.Random,
    capitals: Iterator[str],
    others: Iterator[str],
) -> str:
    position = generator.random()
    if position < QUIZ_SHARE / 4:
        return quiz(countries, generator)
    if position < (QUIZ_SHARE + CONVERSATION_SHARE) / 4:
        return conversation(countries, generator)
    return next(capitals) if generator.random() < CAPITAL_SHARE else next(others)


def _rounds(items: list[str], generator: random.Random) -> Iterator[str]:
    while True:
        yield from generator.sample(items, len(items))


def packed_rows(
    encode: Callable[[str], list[int]], documents: Iterator[str], row_length: int
) -> Iterator[list[int]]:
    """Rows of token ids, each beginning with a document; the last document of a row is cut."""
    while True:
        row: list[int] = []
        while len(row) < row_length:
            row.extend(encode(next(documents)))
        yield row[:row_length]
