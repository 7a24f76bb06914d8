"""What damaged text can mean in a call, by the tools that are offered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glm_engine.text.dialogue import tags
from glm_engine.text.dialogue.schema import properties_of

Offered = Mapping[str, object]
TextAndTag = tuple[str, str]
NOTHING_LEFT = frozenset([""])


def pieces_of(tag: str) -> frozenset[str]:
    """Return what a truncated tag may have left: a beginning or an end of it, or nothing."""
    return NOTHING_LEFT.union(*({tag[:at], tag[at:]} for at in range(1, len(tag))))


KEY_PIECES = pieces_of(tags.ARG_KEY)
KEY_END_PIECES = pieces_of(tags.ARG_KEY_END)
SHORTEST = 4
VALUE_PIECES = tuple(
    one for one in pieces_of(tags.ARG_VALUE) if one.endswith(">") or len(one) >= SHORTEST
)
VALUE_END_PIECES = tuple(
    one for one in pieces_of(tags.ARG_VALUE_END) if one.startswith("<") or len(one) >= SHORTEST
)
KEY_ENDS = (tags.ARG_KEY_END, tags.ARG_VALUE)
CLOSING = (tags.ARG_KEY_END, tags.ARG_VALUE_END)


@dataclass(frozen=True)
class Head:
    """What the beginning of a call can mean.

    key: its first key, where it is known already. skips_tag: a tag stands before it that says
    nothing. is_whole: the call has no arguments, and ends here.
    """

    name: str
    key: str = ""
    skips_tag: bool = False
    is_whole: bool = False


def known_keys(parameters: object, text: str) -> set[str]:
    """Return the properties that text spells, with pieces of the tags around a key or without."""
    properties = properties_of(parameters)
    found: set[str] = set()
    for after in KEY_END_PIECES:
        if text.endswith(after):
            rest = text[: len(text) - len(after)]
            cores = (rest[len(one) :] for one in KEY_PIECES if rest.startswith(one))
            found.update(key for core in cores if (key := tags.bare(core)) in properties)
    return found


def key_reading(parameters: object, text: str) -> str:
    """Return the key that text must be where tags around it are damaged, "" where none is sure."""
    if len(found := known_keys(parameters, text)) == 1:
        return found.pop()
    stated = parameters if isinstance(parameters, dict) else {}
    is_free = not properties_of(stated) or stated.get("additionalProperties")
    bare = tags.bare(text)
    return bare if is_free and not found and not set(bare) & set("<>") else ""


def spelled_heads(offered: Offered, text: str) -> set[Head]:
    """Return what a name and a first key without the tag between them can be."""
    return {
        Head(name, key)
        for name, parameters in offered.items()
        if text.startswith(name)
        for key in known_keys(parameters, text[len(name) :])
    }


def heads(
    offered: Offered, spelled: str, ahead: Sequence[TextAndTag], has_ended: bool
) -> set[Head]:
    """Return what text after `<tool_call>` can mean that no proper tag follows.

    spelled: the text up to a tag or white space. ahead: two texts and tags from there on.
    has_ended: the model ended the turn with them.
    """
    (text, tag), behind = ahead[0], ahead[1] if ahead[1:] else ("", "")
    found = spelled_heads(offered, spelled + text) if tag in KEY_ENDS else set()
    name = tags.bare(spelled)
    if name in offered and tag and not tags.bare(text):
        found |= wrong_tag_heads(offered, name, tag, behind, has_ended)
    elif (
        name in offered and has_ended and is_end_piece(text) and not takes_arguments(offered[name])
    ):
        found.add(Head(name, is_whole=True))
    return found


def wrong_tag_heads(
    offered: Offered, name: str, tag: str, behind: TextAndTag, has_ended: bool
) -> set[Head]:
    """Return what an offered name and a tag that does not belong behind it can mean."""
    text, follower = behind
    parameters = offered[name]
    if tag == tags.TOOL_CALL and not takes_arguments(parameters) and is_head(offered, *behind):
        return {Head(name, is_whole=True)}
    if tags.bare(text):
        keys = known_keys(parameters, text) if follower in KEY_ENDS else ()
        return {Head(name, key, skips_tag=True) for key in keys}
    if follower == tags.ARG_KEY:
        return {Head(name, skips_tag=True)}
    ends = follower == tags.TOOL_CALL_END and not needs_arguments(parameters)
    is_last = has_ended and not follower and tag in CLOSING and not takes_arguments(parameters)
    return {Head(name, skips_tag=True, is_whole=is_last)} if ends or is_last else set()


def may_begin_key(parameters: object, text: str) -> bool:
    """Say whether text may be the beginning of one of the keys, in layout."""
    begun = tags.bare(text.removesuffix("\\"))
    return any(key.startswith(begun) or begun.startswith(key) for key in properties_of(parameters))


def takes_arguments(parameters: object) -> bool:
    return bool(properties_of(parameters)) or needs_arguments(parameters)


def needs_arguments(parameters: object) -> bool:
    return isinstance(parameters, dict) and bool(parameters.get("required"))


def is_head(offered: Offered, text: str, tag: str) -> bool:
    """Say whether a call begins with this text and the tag behind it, after `<tool_call>`."""
    name = tags.bare(text)
    if not name:
        return not text and tag == tags.TOOL_CALL
    if not tags.NAME_RUN.fullmatch(name):
        return False
    is_known = name in offered or spelled_heads(offered, name)
    return tag in (tags.ARG_KEY, tags.TOOL_CALL_END) or bool(tag and is_known)


def is_end_piece(text: str) -> bool:
    """Say whether the text that a turn ends in may be the beginning of `</tool_call>`."""
    return tags.TOOL_CALL_END.startswith(text.rstrip("\\").strip(tags.SPACES))


def begins_like_a_piece(value: str) -> bool:
    """Say whether a value that has no tag before it may begin with a piece of that tag."""
    return value.lstrip(tags.SPACES).startswith(VALUE_PIECES)


def ends_like_a_piece(value: str) -> bool:
    """Say whether a value that has no tag behind it may end with a piece of that tag."""
    return value.endswith(VALUE_END_PIECES)
