"""The commands of a conversation: lines that begin with a slash."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from os.path import expanduser

from glm_engine.conversation.display import note
from glm_engine.conversation.history import TOOL
from glm_engine.conversation.settings import SETTINGS
from glm_engine.errors import BadInputError

LINE = re.compile(r"/(\?|[a-z]+)(?:\s+(.*?))?\s*", re.DOTALL)
SWITCH = {"on": True, "off": False}
ALIASES = {"?": "help", "regenerate": "retry", "exit": "bye", "quit": "bye"}


@dataclass(frozen=True)
class SlashCommand:
    """One command; `argument` is what the help calls it, in brackets where it may be left out.

    words: what completes the argument; None: the path of a file.
    """

    argument: str
    help: str
    act: Callable
    words: tuple | None = ()

    def check(self, name, rest):
        if rest and not self.argument:
            raise BadInputError(f"/{name} takes nothing after it, found {rest!r}")
        if not rest and self.argument and not self.argument.startswith("["):
            raise BadInputError(f"/{name}: expected {self.argument}")


def show_help(session, _rest):
    rows = [(f"/{name} {one.argument}".rstrip(), one.help) for name, one in COMMANDS.items()]
    width = max(len(usage) for usage, _ in rows)
    session.show([f"{usage:<{width}}  {text}" for usage, text in rows])
    session.show(KEYS)


def clear(session, _rest):
    session.conversation.clear()


def set_system(session, text):
    session.conversation.set_system(text or None)


def change_setting(session, rest):
    if not rest:
        session.show(session.settings.lines())
        return
    name, *value = rest.split(None, 1)
    if not value:
        raise BadInputError(f"/set {name}: expected a value, or default")
    session.settings.change(name, value[0])


def set_thinking(session, word):
    if word not in SWITCH:
        raise BadInputError(f"/think: expected on or off, found {word!r}")
    session.settings.thinks = SWITCH[word]


def save(session, path):
    session.conversation.save(expanduser(path))


def load(session, path):
    session.conversation.load(expanduser(path))
    note(f"{len(session.conversation.messages)} messages from {path}")


def retry(session, _rest):
    conversation = session.conversation
    if conversation.unanswered:
        session.say(conversation.unanswered)
    else:
        session.ask(conversation.asked_again())


def give_result(session, text):
    """Answer the oldest tool call that waits; the model goes on when none does any more."""
    calls = session.conversation.open_calls()
    if not calls:
        raise BadInputError("/result: no tool call waits for one")
    message = {"role": TOOL, "tool_call_id": calls[0]["id"], "content": text}
    if len(calls) == 1:
        session.say(message)
    else:
        session.conversation.messages.append(message)
        note(f"the result of {calls[1]['function']['name']} is next")


def leave(session, _rest):
    session.is_over = True


COMMANDS = {
    "help": SlashCommand("", "this list; /? is the same", show_help),
    "clear": SlashCommand("", "forget the conversation, but not the system message", clear),
    "system": SlashCommand("[TEXT]", "set the system message, or take it away", set_system),
    "set": SlashCommand(
        "[NAME VALUE]",
        "how tokens are drawn; VALUE default takes it back",
        change_setting,
        tuple(SETTINGS),
    ),
    "think": SlashCommand("on|off", "ask for thoughts or not", set_thinking, tuple(SWITCH)),
    "retry": SlashCommand("", "answer again; /regenerate is the same", retry),
    "result": SlashCommand("TEXT", "what the tool that was called returns", give_result),
    "save": SlashCommand("FILE", "write the conversation as JSON", save, None),
    "load": SlashCommand("FILE", "go on with one that was saved", load, None),
    "bye": SlashCommand("", "leave; /exit and /quit are the same", leave),
}
KEYS = [
    'Enter sends; Alt-Enter, a backslash before Enter, or """ around a text begins a new line',
    "Ctrl-C stops an answer; once more, or Ctrl-D, leaves",
]


def obey(session, line):
    """Run a command if the line is one, and say whether it is."""
    found = LINE.fullmatch(line)
    if not found:
        return False
    name, rest = ALIASES.get(found[1], found[1]), found[2] or ""
    if name not in COMMANDS:
        raise BadInputError(f"/{name} is no command; /help lists them")
    command = COMMANDS[name]
    command.check(name, rest)
    command.act(session, rest)
    return True


def completions():
    """Return what completes each command's argument by its name: words, or None for a path.

    The name of a command that takes an argument ends in the space before it.
    """
    names = {**{name: name for name in COMMANDS}, **ALIASES}
    commands = [(f"/{name}", COMMANDS[of]) for name, of in names.items()]
    return {f"{name} " if one.argument else name: one.words for name, one in commands}
