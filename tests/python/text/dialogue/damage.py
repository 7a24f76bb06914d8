"""Turns whose calls have damaged tags, and what holds of whatever is read of them."""

import json
from dataclasses import dataclass

from glm_engine.text.dialogue.tags import CALL_TAGS, TOOL_CALL, TOOL_CALL_END
from tests.python.text.dialogue.folding import tool

TOOLS = [
    tool("search", query="string", limit="integer"),
    tool("now"),
    tool("look", up="string"),
    tool("look_up", country="string", years="array"),
    tool("write", path="string", text="string", mode={"enum": ["a", "b", None]}),
]
SCHEMAS = {one["function"]["name"]: one["function"]["parameters"]["properties"] for one in TOOLS}
TEXTS = [
    *("x", "a b", "", " ", "\n", "a < b", "</", "é😀", "5", "null", '"x"', "\\", "\\n"),
    *("<b>bold</b>", "def f():\n    return 1\n", "query", "path", "search", "a > b"),
]
LEAST_PIECE = 4
SWAPPED = {
    "<tool_call>": "</tool_call>",
    "<arg_key>": "</arg_key>",
    "<arg_value>": "</arg_value>",
}


@dataclass
class Turn:
    """A turn as pieces, of which those that are tags can be damaged; `calls` are those meant.

    is_plain: nothing was damaged so that it reads as another call: no `</tool_call>` came into its
    middle, enough of a truncated tag is left to tell it from text, and the text beside it does
    not complete it again, as the value “</” does before “arg_value>”.
    """

    pieces: list
    calls: list
    in_reasoning: bool
    is_plain: bool = True

    @property
    def text(self):
        return "".join(self.pieces)


def random_turn(random, most_damage=3):
    """A turn of some calls, in one of the two spellings, with some of its tags damaged."""
    newline = random.choice(["", "\n"])
    pieces, calls = [random.choice(["", "", "I look.", "So:\n"])], []
    in_reasoning = random.random() < 0.2
    if in_reasoning and random.random() < 0.6:
        pieces.append("</think>")
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        name, schemas = random.choice(list(SCHEMAS.items()))
        keys = [key for key in schemas if random.random() < 0.8]
        arguments = {key: random_value(random, schemas[key]) for key in keys}
        calls.append((name, arguments))
        pieces += spelled(name, arguments, newline)
    pieces.append(random.choice(["", "", "", "\n", "Done."]))
    turn = Turn(pieces, calls, in_reasoning)
    for _ in range(random.randint(0, most_damage)):
        damage(random, turn)
    return turn


def random_value(random, schema):
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema["type"] == "integer":
        return random.randint(0, 99)
    if schema["type"] == "array":
        return [random.choice(["a", 1, None]) for _ in range(random.randint(0, 3))]
    return random.choice(TEXTS)


def spelled(name, arguments, newline):
    pieces = ["<tool_call>", name, newline]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        pieces += ["<arg_key>", key, "</arg_key>", newline]
        pieces += ["<arg_value>", text, "</arg_value>", newline]
    return [*pieces, TOOL_CALL_END, newline]


def damage(random, turn):
    """Drop, double, swap or truncate one tag."""
    places = [at for at, piece in enumerate(turn.pieces) if piece in CALL_TAGS]
    if not places:
        return
    at = random.choice(places)
    tag, pieces = turn.pieces[at], turn.pieces
    kind = random.choice(["drop", "double", "swap", "mirror", "exchange", "end", "begin"])
    if kind == "drop":
        pieces[at] = ""
    elif kind == "double":
        pieces.insert(at, tag)
    elif kind == "swap":
        pieces[at] = random.choice([one for one in CALL_TAGS if one != tag])
    elif kind == "mirror":
        mirrored = {**SWAPPED, **{end: begin for begin, end in SWAPPED.items()}}
        pieces[at] = mirrored[tag]
    elif kind == "exchange":
        other = random.choice(places)
        pieces[at], pieces[other] = pieces[other], tag
    else:
        size = random.randint(1, len(tag) - 1)
        pieces[at] = tag[:size] if kind == "end" else tag[size:]
        is_mended = tag in "".join(pieces[max(at - 1, 0) : at + 2])
        turn.is_plain &= len(pieces[at]) >= LEAST_PIECE and not is_mended
    if kind in ("swap", "mirror", "exchange"):
        turn.is_plain &= not {TOOL_CALL, TOOL_CALL_END} & {tag, pieces[at]}


def cut_somewhere(random, text):
    return text[: random.randint(0, len(text))]


def pieces_of(random, text):
    """The text cut anywhere: in single characters, in one piece, or in some."""
    size = random.choice([1, 1, 2, 3, 5, 8, 1 << 20])
    return [text[at : at + size] for at in range(0, len(text), size)]


def check_call(name, arguments):
    """Check that a call that runs holds no tag; returns its arguments."""
    found = json.loads(arguments)
    assert isinstance(found, dict), arguments
    held = [tag for tag in CALL_TAGS for text in texts_in([name, found]) if tag in text]
    assert not held, (name, found)
    return found


def texts_in(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *texts_in(list(value.values()))]
    return [text for one in value for text in texts_in(one)] if isinstance(value, list) else []


def is_open(arguments):
    """Say whether arguments are no whole JSON value."""
    try:
        json.loads(arguments)
    except ValueError:
        return True
    return False
