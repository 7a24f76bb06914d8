"""Incremental text against whole text, and stop sequences against str.find."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import IncrementalDetokenizer, byte_alphabet, token_bytes


def pushed(chunks, skipped=frozenset()):
    detokenizer = IncrementalDetokenizer(lambda index: chunks[index], skipped)
    pieces = [detokenizer.push(index) for index in range(len(chunks))]
    return pieces, detokenizer.finish()


def test_alphabet_is_one_character_a_byte():
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert alphabet["Ġ"] == 0x20
    assert alphabet["Ċ"] == 0x0A


def test_token_outside_the_alphabet_is_text():
    assert token_bytes("Ġa") == b" a"
    assert token_bytes("a b") == b"a b"
    assert token_bytes("") == b""


def test_character_waits_for_its_last_byte():
    text = "é€😀"
    pieces, rest = pushed([bytes([byte]) for byte in text.encode()])
    assert pieces == ["", "é", "", "", "€", "", "", "", "😀"]
    assert rest == ""


def test_unfinished_character_is_replaced_at_the_end():
    pieces, rest = pushed([b"a", b"\xe2\x82"])
    assert (pieces, rest) == (["a", ""], "\ufffd")


def test_skipped_tokens_give_nothing():
    pieces, _ = pushed([b"a", b"b", b"c"], skipped=frozenset({1}))
    assert pieces == ["a", "", "c"]


@given(st.text(), st.data())
def test_cuts_anywhere_give_the_same_text(text, data):
    content = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)))))
    edges = [0, *cuts, len(content)]
    chunks = [content[low:high] for low, high in pairwise(edges)]
    pieces, rest = pushed(chunks)
    assert "".join(pieces) + rest == content.decode()
    assert rest == ""


@given(st.lists(st.binary(max_size=4)))
def test_any_bytes_give_what_one_decoding_gives(chunks):
    pieces, rest = pushed(chunks)
    assert "".join(pieces) + rest == b"".join(chunks).decode("utf-8", "replace")


def matched(pieces, stops):
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece) for piece in pieces]
    return "".join(shown) + matcher.finish(), matcher.stopped


def test_stop_across_pieces_is_never_shown():
    matcher = StopMatcher(["STOP"])
    assert [matcher.push(piece) for piece in ["a S", "T", "OP b", "c"]] == ["a ", "", "", ""]
    assert matcher.stopped
    assert matcher.finish() == ""


def test_false_start_is_shown_later():
    matcher = StopMatcher(["STOP"])
    assert [matcher.push(piece) for piece in ["ST", "A", "STO"]] == ["", "STA", ""]
    assert matcher.finish() == "STO"


def test_first_of_several_stops_wins():
    assert matched(["one two three"], ["three", "two"]) == ("one ", True)


def test_no_stops_hold_nothing_back():
    assert StopMatcher([]).push("abc") == "abc"
    assert StopMatcher([""]).push("abc") == "abc"


@given(
    st.lists(st.text("ab", max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_shown_text_ends_where_the_first_stop_completes(pieces, stops):
    text = "".join(pieces)
    shown, stopped = matched(pieces, stops)
    found = [text.find(stop) for stop in stops if stop in text]
    assert stopped == bool(found)
    if not found:
        assert shown == text
        return
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    assert any(text[len(shown) :].startswith(stop) for stop in stops)


@given(
    st.lists(st.text("ab", max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.integers(0, 12),
)
def test_a_stop_counts_where_it_ends_in_text_that_counts(pieces, stops, num_uncounted):
    matcher, text, shown, least = StopMatcher(stops), "", "", None
    for at, piece in enumerate(pieces):
        begin, text = len(text), text + piece
        shown += matcher.push(piece, at >= num_uncounted)
        if at < num_uncounted:
            continue
        ends = [
            end
            for end in range(begin + 1, len(text) + 1)
            for one in stops
            if text[:end].endswith(one)
        ]
        if ends and least is None:
            least = min(ends)
    shown += matcher.finish()
    assert matcher.stopped == (least is not None)
    assert text.startswith(shown)
    assert shown == text if least is None else len(shown) < len(text)
    if matcher.stopped:
        assert text[len(shown) :].startswith(matcher.found)
        assert len(shown) + len(matcher.found) >= least
