"""The grammar of the arguments of one call, whole or damaged, as generators that wait for text."""

from collections.abc import Callable

from glm_engine.text.dialogue import tags
from glm_engine.text.dialogue.arguments import (
    MISSING,
    PROPER,
    WRONG,
    ArgumentsWriter,
    Value,
    Write,
)
from glm_engine.text.dialogue.readings import (
    KEY_ENDS,
    Offered,
    is_end_piece,
    is_head,
    key_reading,
    known_keys,
)
from glm_engine.text.dialogue.tags import (
    ARG_KEY,
    ARG_KEY_END,
    ARG_VALUE,
    ARG_VALUE_END,
    CALL_PARTS,
    CALL_TAGS,
    TOOL_CALL,
    TOOL_CALL_END,
    Reading,
    TagReader,
    TagSet,
    bare,
)

LONGEST_AHEAD = 4096
LONGEST_END = 64


class PairReader:
    """Reads the pairs of one call up to its end, as far as there is one reading of them.

    A key or a value ends at any tag. Where it is not the tag that belongs there, the call is
    damaged, and every key from there on must be one of the tool's. Text without a reading is left
    unread, and the JSON of the arguments stays open.
    """

    def __init__(
        self, reader: TagReader, offered: Offered, name: str, any_tag: TagSet, write: Write
    ) -> None:
        self.reader = reader
        self.offered = offered
        self.parameters = offered.get(name)
        self.any_tag = any_tag
        self.write = write
        self.writer = ArgumentsWriter(self.parameters)
        self.keys: set[str] = set()
        self.is_damaged = False
        self.is_closed = True

    def read(self, tag: str, key: str = "") -> Reading[bool]:
        """Read what follows a tag, of the first pair perhaps the key; say if the call ended."""
        while tag == ARG_KEY:
            opening = yield from self.key(key)
            is_sure = opening == PROPER or self.is_closed
            if not opening or not is_sure or not self.has_settled_key():
                self.write(self.writer.unfinished_key())
                return False
            self.write(self.writer.begin_value())
            value = Value(self.writer, self.write, opening)
            if not (yield from self.value(value)):
                value.leave()
                return False
            value.end(self.is_closed)
            tag, key = yield from self.after_value()
        if tag == TOOL_CALL_END:
            self.write(self.writer.close())
        return tag == TOOL_CALL_END

    def text_before(self, push: Callable[[str], object]) -> Reading[str]:
        """Read text up to a tag, and return the tag: "" where all text or what is around ends."""
        tag = ""
        while not tag and not self.reader.is_at_end:
            text, tag = yield from self.reader.until(self.any_tag)
            push(text)
        self.reader.unread(tag)
        return tag if tag in CALL_TAGS else ""

    def skip_tag(self, is_damage: bool = True) -> Reading[None]:
        """Read the tag that stands here, behind layout perhaps."""
        self.is_damaged |= is_damage
        yield from self.reader.until(self.any_tag)

    def behind_tag(self) -> Reading[tuple[str, str]]:
        """Return the text behind the tag that stands here, without layout, and the next tag."""
        _, *behind = yield from self.reader.ahead(self.any_tag, 2, LONGEST_AHEAD)
        text, tag = behind[0] if behind else ("", "")
        return bare(text), tag

    def key(self, known: str) -> Reading[str]:
        """Read a key and the tags behind it; return how its value is opened, "" if it is not."""
        self.writer.push_key(known)
        tag = yield from self.text_before(self.writer.push_key)
        while tag in (ARG_KEY, ARG_VALUE_END) and not bare(self.writer.unwritten_key):
            self.writer.forget_key()
            yield from self.skip_tag()
            tag = yield from self.text_before(self.writer.push_key)
        if tag == ARG_KEY_END:
            yield from self.skip_tag(is_damage=False)
            return (yield from self.opening())
        if tag == ARG_VALUE:
            yield from self.skip_tag()
            return PROPER
        if tag and (yield from self.behind_tag()) == ("", ARG_VALUE):
            yield from self.skip_tag()
            yield from self.skip_tag()
            return PROPER
        return ""

    def opening(self) -> Reading[str]:
        """Read what stands between `</arg_key>` and a value; return how it is opened."""
        while True:
            yield from self.reader.layout()
            tag = yield from self.reader.tag(self.any_tag)
            if tag == ARG_VALUE:
                return PROPER
            if not tag:
                return "" if self.reader.drop_piece_at_end(self.any_tag) else MISSING
            self.reader.unread(tag)
            text, follower = yield from self.behind_tag()
            if tag == ARG_VALUE_END and not text and follower in CALL_PARTS:
                return "" if self.reader.dropped_piece else PROPER
            if tag == ARG_KEY_END or (not text and follower == ARG_VALUE):
                yield from self.skip_tag()
            elif text and tag in (ARG_KEY, ARG_VALUE_END, TOOL_CALL):
                yield from self.skip_tag()
                return WRONG
            else:
                return ""

    def has_settled_key(self) -> bool:
        """Say whether the key that was read may come; in a damaged call it is one of the tool's."""
        if self.is_damaged:
            key = key_reading(self.parameters, self.writer.unwritten_key)
            if not key or key in self.keys:
                return False
            self.writer.forget_key()
            self.writer.push_key(key)
        self.keys.add(self.writer.unwritten_key)
        return True

    def value(self, value: Value) -> Reading[bool]:
        """Read a value and the tag that ends it; say whether there is one reading of it."""
        tag = yield from self.value_begin(value)
        if not tag:
            tag = yield from self.text_before(value.push)
        self.is_closed = tag == ARG_VALUE_END
        if self.is_closed:
            yield from self.skip_tag(is_damage=False)
            return value.is_certain
        if not tag or not value.may_end_at(tag):
            return False
        self.is_damaged = True
        if tag == TOOL_CALL_END:
            return (yield from self.is_last())
        if tag != ARG_KEY:
            text, follower = yield from self.behind_tag()
            if text or follower not in CALL_PARTS:
                return False
            yield from self.skip_tag()
        return True

    def is_last(self) -> Reading[bool]:
        """Say whether the call ends with a `</tool_call>` that no end of the value stands before.

        Where more of a call follows that tag, it may as well be text of the value.
        """
        _, (text, tag), *more = yield from self.reader.ahead(self.any_tag, 3, LONGEST_AHEAD)
        if not tag:
            return not self.reader.is_cut_within(LONGEST_AHEAD)
        if tag == ARG_VALUE_END and not bare(text):
            return more[0][1] != TOOL_CALL_END or bool(bare(more[0][0]))
        return tag == TOOL_CALL or tag not in CALL_TAGS or (tag == TOOL_CALL_END and not bare(text))

    def value_begin(self, value: Value) -> Reading[str]:
        """Read the white space that a value begins with; before a doubled tag it is layout.

        Returns the tag that stands right behind it, "" for text.
        """
        while True:
            spaces = yield from self.reader.run(tags.SPACE_RUN)
            tag = yield from self.reader.tag(self.any_tag)
            if tag not in KEY_ENDS or value.opening != PROPER:
                self.reader.unread(tag)
                value.push(spaces)
                return tag if tag in CALL_TAGS else ""
            self.is_damaged = True

    def after_value(self) -> Reading[tuple[str, str]]:
        """Return the tag behind a value, that of a key with the key where it is known already.

        The tag is "" where all text ends, or where there is no reading of what comes.
        """
        while True:
            yield from self.reader.layout()
            tag = yield from self.reader.tag(self.any_tag)
            if tag in CALL_PARTS:
                return tag, ""
            if tag == ARG_VALUE_END:
                self.is_damaged = True
            elif (
                not tag
                and self.reader.has_ended_within(LONGEST_END)
                and is_end_piece(self.reader.rest)
            ):
                self.reader.drop_rest()
                return TOOL_CALL_END, ""
            elif not tag and self.reader.drop_piece_at_end(self.any_tag):
                return "", ""
            else:
                self.reader.unread(tag)
                tag, key = yield from self.wrong_tag()
                if tag != ARG_VALUE:
                    return tag, key

    def wrong_tag(self) -> Reading[tuple[str, str]]:
        """Return, as `after_value`, what text or a tag behind a value must mean."""
        ahead = yield from self.reader.ahead(self.any_tag, 2, LONGEST_AHEAD)
        has_ended = not ahead[-1][1] and self.reader.has_ended_within(LONGEST_AHEAD)
        (text, tag), *behind = ahead
        if bare(text):
            behind, tag = ahead, ""
        text, follower = behind[0] if behind else ("", "")
        if tag in KEY_ENDS and not bare(text) and follower in CALL_PARTS:
            yield from self.skip_tag()
            return ARG_VALUE, ""
        keys = known_keys(self.parameters, text) if follower in KEY_ENDS else set()
        ends = self.ends_at(tag, text, follower, has_ended)
        if len(keys) + ends != 1:
            return "", ""
        if ends:
            return TOOL_CALL_END, ""
        if tag:
            yield from self.skip_tag()
        self.is_damaged = True
        yield from self.text_before(str)
        return ARG_KEY, keys.pop()

    def ends_at(self, tag: str, text: str, follower: str, has_ended: bool) -> bool:
        """Say whether the call ends before a tag that another call, or nothing, comes behind."""
        if tag == TOOL_CALL and is_head(self.offered, text, follower):
            return True
        is_last = has_ended and not follower and tag in (TOOL_CALL, ARG_KEY_END)
        if is_last and not bare(text):
            self.reader.drop_rest()
        return is_last and not bare(text)
