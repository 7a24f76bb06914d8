"""The grammar of tool calls, as generators that wait for text."""

import re
from collections.abc import Iterable
from functools import partial

from glm_engine.text.dialogue import tags
from glm_engine.text.dialogue.deltas import CallArguments, CallBegin, CallEnd, Delta
from glm_engine.text.dialogue.pairs import PairReader
from glm_engine.text.dialogue.readings import KEY_ENDS, Offered, heads, known_keys, may_begin_key
from glm_engine.text.dialogue.schema import properties_of
from glm_engine.text.dialogue.tags import CALL_TAGS, Reading, TagReader, TagSet

LONGEST_NAME = 256
LONGEST_HEAD = 1024
PARTS = TagSet(*tags.CALL_PARTS, takes_pieces=True)
TOOL_CALL = TagSet(tags.TOOL_CALL)
ESCAPED_END = re.compile(r"(?:\\n)+\Z")


class CallReader:
    """Reads calls, one after another, into deltas.

    parameters: the schema of each tool's arguments, by its name.
    outer_ends: tags that end what stands around the calls; they are left unread, and the call
    that they come in ends like one that all text ends in.
    """

    def __init__(
        self,
        reader: TagReader,
        parameters: Offered,
        deltas: list[Delta],
        outer_ends: Iterable[str] = (),
    ) -> None:
        self.reader = reader
        self.parameters = parameters
        self.deltas = deltas
        self.any_tag = TagSet(*CALL_TAGS, *outer_ends, takes_pieces=True)
        self.num_calls = 0
        self.num_whole = 0

    @property
    def are_whole(self) -> bool:
        """Whether every call came to its end; after one that did not, nothing is a call."""
        return self.num_whole == self.num_calls

    def read(self) -> Reading[str]:
        """Read what follows `<tool_call>`; return it where it only looked like a call, else ""."""
        before = [tags.TOOL_CALL, (yield from self.reader.layout())]
        while (yield from self.reader.tag(TOOL_CALL)):
            before += [tags.TOOL_CALL, (yield from self.reader.layout())]
        text = yield from self.reader.run(tags.NAME_RUN, LONGEST_NAME)
        after = yield from self.reader.layout()
        name = ESCAPED_END.sub("", text) if len(text) <= LONGEST_NAME else ""
        is_plausible = name in self.parameters or ">" not in name
        tag = (yield from self.reader.tag(PARTS)) if name and is_plausible else ""
        if tag == tags.ARG_KEY:
            yield from self.call(name, tag)
        elif tag:
            self.reader.unread(tag)
            keys = yield from self.keys_behind(name)
            if keys is not None and len(keys) != 1:
                return "".join([*before, text, after])
            yield from self.reader.tag(PARTS)
            if keys is None:
                yield from self.call(name, tag)
            else:
                yield from self.keyed_call(name, keys.pop())
        elif not (name and (yield from self.damaged_call(text + after))):
            return "".join([*before, text, after])
        return ""

    def damaged_call(self, spelled: str) -> Reading[bool]:
        """Read a call that begins with a wrong tag or none, where there is one reading of it."""
        if not any(map(spelled.startswith, self.parameters)):
            return False
        ahead = yield from self.reader.ahead(self.any_tag, 2, LONGEST_HEAD)
        has_ended = not ahead[-1][1] and self.reader.has_ended_within(LONGEST_HEAD)
        found = heads(self.parameters, spelled, ahead, has_ended)
        if len(found) != 1:
            return False
        [head] = found
        if head.skips_tag:
            yield from self.reader.until(self.any_tag)
        if head.key:
            yield from self.keyed_call(head.name, head.key)
        elif head.is_whole:
            yield from self.call(head.name, tags.TOOL_CALL_END)
        else:
            _, tag = yield from self.reader.until(self.any_tag)
            yield from self.call(head.name, tag)
        return True

    def keys_behind(self, name: str) -> Reading[set[str] | None]:
        """Return what can be the key behind a `</tool_call>` that may stand for `<arg_key>`.

        None: it stands for itself.
        """
        parameters = self.parameters.get(name)
        if not properties_of(parameters):
            return None
        goes_on = partial(may_begin_key, parameters)
        _, *behind = yield from self.reader.ahead(self.any_tag, 2, LONGEST_HEAD, goes_on)
        text, tag = behind[0] if behind else ("", "")
        stands_for_key = tag in KEY_ENDS and tags.bare(text) and may_begin_key(parameters, text)
        return known_keys(parameters, text) if stands_for_key else None

    def keyed_call(self, name: str, key: str) -> Reading[None]:
        """Read a call whose first key stands here and is known already."""
        _, tag = yield from self.reader.until(self.any_tag)
        self.reader.unread(tag)
        yield from self.call(name, tags.ARG_KEY, key)

    def call(self, name: str, tag: str, key: str = "") -> Reading[None]:
        """Read pairs of key and value; without the end of the call, its JSON stays open."""
        index, self.num_calls = self.num_calls, self.num_calls + 1
        self.deltas.append(CallBegin(index, name))

        def write(text: str) -> None:
            if text:
                self.deltas.append(CallArguments(index, text))

        pairs = PairReader(self.reader, self.parameters, name, self.any_tag, write)
        if (yield from pairs.read(tag, key)):
            self.num_whole += 1
            self.deltas.append(CallEnd(index))
