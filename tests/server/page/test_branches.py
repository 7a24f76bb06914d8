"""Copy, edit, regenerate, continue and stop: what is sent, what is kept, how to move between."""

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import (
    answers,
    ask,
    ask_for,
    facts,
    last_request,
    last_text,
    wait_until_done,
)

expect = groups.imported("playwright.sync_api").expect

HOLD_WRITES = """() => {
  const { transaction } = IDBDatabase.prototype;
  const held = { objectStore: () => ({ get: () => ({}) }) };
  IDBDatabase.prototype.transaction = function (names, mode) {
    return mode === "readwrite" ? held : transaction.call(this, names, mode);
  };
}"""
CLIPBOARD = "() => navigator.clipboard.readText()"
PERMISSIONS = ["clipboard-read", "clipboard-write"]


def contents(page) -> list[str]:
    return [one["content"] for one in last_request(page)["messages"]]


def press(page, name: str, index: int = -1) -> None:
    """Reach a button as the keyboard does, and press it."""
    button = page.get_by_role("button", name=name, exact=True).nth(index)
    button.focus()
    page.keyboard.press("Enter")


def test_edited_message_makes_a_branch_and_both_are_kept(look):
    page = look
    ask_for(page, "first", "one")
    ask_for(page, "second", "two")
    scripted.answer_with(page, answers("three"))
    press(page, "Edit", 0)
    field = page.get_by_label("Edit the message")
    expect(field).to_be_focused()
    assert field.input_value() == "first"
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("first, changed")
    page.keyboard.press("Enter")
    wait_until_done(page)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    assert contents(page) == ["first, changed"]
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.get_by_role("group", name="Versions")).to_contain_text("2/2")
    press(page, "Previous version")
    expect(page.locator(".asked")).to_contain_text(["first", "second"])
    expect(page.locator(".answer > .text")).to_have_text(["one", "two"])
    expect(page.get_by_role("button", name="Next version")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".answer > .text")).to_have_text(["three"])
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text(["three"])
    press(page, "Previous version")
    expect(page.locator(".answer > .text")).to_have_text(["one", "two"])
    assert page.evaluate("() => measures.cutOff()") == []


def test_regenerated_answers_are_versions_of_one(look):
    page = look
    ask_for(page, "question", "one")
    for text in ("two", "three"):
        scripted.answer_with(page, answers(text))
        press(page, "Regenerate")
        wait_until_done(page)
        expect(page.locator(".answer > .text")).to_have_text(text)
        assert contents(page) == ["question"]
    press(page, "Previous version")
    expect(page.get_by_role("group", name="Versions")).to_contain_text("2/3")
    ask_for(page, "more", "four")
    assert contents(page) == ["question", "two", "more"]


def test_escape_leaves_a_message_as_it_was(page):
    ask_for(page, "question", "one")
    press(page, "Edit")
    page.keyboard.type("changed")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit")).to_be_focused()
    expect(page.locator(".asked")).to_contain_text("question")
    expect(page.get_by_role("group", name="Versions")).to_have_count(0)


def test_continued_answer_goes_on_where_it_ended(look):
    page = look
    ask_for(page, "question", "The capital", " of", reason="length")
    assert facts(page).startswith("Max tokens reached · 2 tokens")
    scripted.answer_with(page, answers(" France"))
    press(page, "Continue")
    wait_until_done(page)
    request = last_request(page)
    assert request["messages"][-1] == {"role": "assistant", "content": "The capital of"}
    assert (request["continue_final_message"], request["add_generation_prompt"]) == (True, False)
    assert last_text(page) == "The capital of France"
    assert facts(page).startswith("3 tokens")
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)


def test_server_continues_an_answer(page):
    page.get_by_label("Max tokens").fill("1")
    ask(page, "What is the capital of France?")
    wait_until_done(page)
    begun = last_text(page)
    assert begun in {"P", "Pa", "Par", "Pari", "Paris"}
    page.get_by_label("Max tokens").fill("")
    press(page, "Continue")
    wait_until_done(page)
    assert last_text(page) == "Paris."


def test_copy_gives_the_text_as_it_was_written(visit, server):
    page, _ = visit(server, permissions=PERMISSIONS)
    ask_for(page, "a *question*", "**bold** and `code`")
    press(page, "Copy")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate(CLIPBOARD) == "**bold** and `code`"
    press(page, "Copy", 0)
    page.wait_for_function(f"async () => await ({CLIPBOARD})() === 'a *question*'")


def test_context_in_use_is_shown(page):
    ask_for(page, "question", "one", "two")
    expect(page.locator("#context")).to_have_text("Context 11 of 4,096 tokens")
    page.get_by_role("button", name="New").click()
    expect(page.locator("#context")).to_have_text("")


def test_time_of_a_thought_is_kept(page):
    thought = scripted.chunk({"reasoning_content": "It is "})
    begun = scripted.event_stream(thought, done=False)
    scripted.answer_with(page, [begun], is_to_go_on=True)
    ask(page, "question")
    expect(page.locator(".thought > .text")).to_be_visible()
    page.wait_for_timeout(1100)
    scripted.go_on_with(page, answers("Paris"))
    wait_until_done(page)
    summary = page.locator(".thought > summary")
    seconds = float(summary.text_content().removeprefix("Thought for ").removesuffix("\u00a0s"))
    assert 1 <= seconds < 30
    expect(page.locator(".thought > .text")).to_be_hidden()
    said = summary.text_content()
    page.reload()
    expect(summary).to_have_text(said)


def test_version_chosen_just_before_a_reload_stays_chosen(page):
    ask_for(page, "first", "one")
    scripted.answer_with(page, answers("two"))
    press(page, "Regenerate")
    wait_until_done(page)
    expect(page.locator(".answer > .text")).to_have_text("two")
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text("two")
    page.evaluate(HOLD_WRITES)
    press(page, "Previous version")
    expect(page.locator(".answer > .text")).to_have_text("one")
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text("one")
