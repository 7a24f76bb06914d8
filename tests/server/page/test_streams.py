"""Answers in exact bytes: borders of chunks, line ends, thoughts, tool calls, errors."""

import pytest

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import ask, facts, last_text, wait_until_done

expect = groups.imported("playwright.sync_api").expect

TEXT = "Zürich, Kraków, 東京 and 🙂"
LINES = scripted.event_stream(scripted.chunk({"content": "line\n" * 60}), done=False)
LEFT_BELOW = """() => {
  const { scrollTop, scrollHeight, clientHeight } = document.querySelector("#scroll");
  return scrollHeight - scrollTop - clientHeight;
}"""
USAGE = {"choices": [], "usage": {"completion_tokens": 7}}
ANSWER = (
    *(scripted.chunk({"content": one}) for one in TEXT),
    scripted.chunk({}, "stop"),
    USAGE,
)


@pytest.fixture
def answered(visit, server):
    """Ask once, where the server answers with these chunks of bytes."""

    def open_and_ask(chunks):
        page, watch = visit(server)
        scripted.answer_with(page, chunks)
        ask(page, "question")
        wait_until_done(page)
        assert watch.said == []
        return page

    return open_and_ask


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_borders_of_chunks_do_not_matter(answered, size, newline):
    stream = scripted.event_stream(*ANSWER, newline=newline)
    page = answered(scripted.pieces(stream, size))
    assert last_text(page) == TEXT
    assert facts(page).startswith("7 tokens")


def test_other_fields_and_split_data_are_read(answered):
    stream = (
        b": keep-alive\n\nevent: message\nid: 1\n"
        b'data:{"choices": [{"index": 0,\ndata: "delta": {"content": "whole"}}]}\n\n'
        b"data: [DONE]\n\n"
    )
    page = answered([stream])
    assert last_text(page) == "whole"


def test_thought_is_kept_apart(answered):
    thought = [scripted.chunk({"reasoning_content": one}) for one in ("It is ", "Paris.")]
    page = answered([scripted.event_stream(*thought, *ANSWER)])
    block = page.locator(".thought")
    expect(block.locator("summary")).to_contain_text("Thought for")
    expect(block.locator(".text")).to_be_hidden()
    block.locator("summary").click()
    expect(block.locator(".text")).to_have_text("It is Paris.")
    assert last_text(page) == TEXT


def test_tool_calls_are_shown(answered):
    calls = (
        scripted.call(0, name="weather", arguments=""),
        scripted.call(0, arguments='{"city": "Pa'),
        scripted.call(0, arguments='ris"}'),
        scripted.call(1, name="clock", arguments="{}"),
        scripted.chunk({}, "tool_calls"),
    )
    page = answered([scripted.event_stream(*calls)])
    expect(page.locator(".call code")).to_have_text(["weather", "clock"])
    expect(page.locator(".call pre")).to_have_text(['{ "city": "Paris" }', "{}"])
    assert facts(page).startswith("asks for a tool")


MARKUP = '<img src="/x" onerror="document.title=1"><script>document.title = 2</script>&amp;'


def test_markup_stays_text(answered):
    chunks = (
        scripted.chunk({"reasoning_content": MARKUP}),
        scripted.chunk({"content": MARKUP}),
        scripted.call(0, name=MARKUP, arguments=MARKUP),
    )
    page = answered([scripted.event_stream(*chunks)])
    assert page.locator(".thought .text").text_content() == MARKUP.replace("&amp;", "&")
    assert page.locator(".answer > .text").text_content() == MARKUP.replace("&amp;", "&")
    assert page.locator(".call code").text_content() == MARKUP
    assert page.locator("#log img, #log script").count() == 0
    assert page.title() == "capitals"


def test_error_inside_the_stream(answered):
    stream = scripted.event_stream(
        scripted.chunk({"content": "Par"}), {"error": {"message": "the engine is lost"}}
    )
    page = answered([stream])
    expect(page.get_by_role("alert")).to_contain_text("the engine is lost")
    assert last_text(page) == "Par"


def test_stream_without_an_end_is_an_error(answered):
    page = answered([scripted.event_stream(scripted.chunk({"content": "Par"}), done=False)])
    expect(page.get_by_role("alert")).to_contain_text("ended before the answer did")


def test_failed_turn_is_not_sent_again(answered):
    page = answered([scripted.event_stream({"error": {"message": "no"}})])
    ask(page, "second")
    wait_until_done(page)
    messages = page.evaluate("() => requests.bodies.at(-1).messages")
    assert messages == [{"role": "user", "content": "second"}]


def test_view_follows_the_answer_unless_scrolled_away(page):
    at_the_end = f"() => ({LEFT_BELOW})() < 2"
    scripted.answer_with(page, [LINES], is_to_go_on=True)
    ask(page, "question")
    page.wait_for_function("() => document.querySelector('#scroll').scrollTop > 200")
    page.wait_for_function(at_the_end)
    page.locator("#scroll").hover()
    page.mouse.wheel(0, -5000)
    page.wait_for_function("() => document.querySelector('#scroll').scrollTop === 0")
    left = page.evaluate(LEFT_BELOW)
    scripted.go_on_with(page, [LINES])
    page.wait_for_function(f"left => ({LEFT_BELOW})() > left + 1000", arg=left)
    page.mouse.wheel(0, 50_000)
    page.wait_for_function(at_the_end)
    scripted.go_on_with(page, [LINES])
    page.wait_for_function("() => document.querySelector('.text').textContent.length === 720")
    page.wait_for_function(at_the_end)
    page.get_by_label("Message").fill("many\nlines\nof a message\n" * 4)
    page.wait_for_function(at_the_end)
    scripted.go_on_with(page, [scripted.event_stream()])
    wait_until_done(page)
