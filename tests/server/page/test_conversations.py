"""The list of conversations: kept, searched, renamed, deleted, exported, imported, in two tabs."""

import json
import time

import pytest

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import (
    answers,
    ask,
    ask_for,
    facts,
    keep_requests,
    wait_until_done,
)

expect = groups.imported("playwright.sync_api").expect

FILL_STORAGE = """() => {
  const { put } = IDBObjectStore.prototype;
  window.empty = () => { IDBObjectStore.prototype.put = put; };
  IDBObjectStore.prototype.put = () => {
    throw new DOMException("no space", "QuotaExceededError");
  };
}"""
NUM_MESSAGES = 20_000
IMPORT_SECONDS = 8
NO_MESSAGES = {"format": "glm-engine conversations", "version": 1, "conversations": [{"id": "a"}]}
BAD_FILES = {
    "not JSON": (b"{", "it is not JSON"),
    "another format": (b'{"format": "else"}', "its format is not"),
    "null": (b"null", "its format is not"),
    "another version": (b'{"format": "glm-engine conversations", "version": 9}', "its version"),
    "without messages": (json.dumps(NO_MESSAGES).encode(), "conversation 1 has no messages"),
}


def titles(page):
    return page.locator(".conversation")


def open_list(page) -> None:
    button = page.get_by_role("button", name="Conversations")
    if button.is_visible() and not page.get_by_label("Search conversations").is_visible():
        button.press("Enter")


def begin(page, question: str, answer: str) -> None:
    page.get_by_role("button", name="New").press("Enter")
    ask_for(page, question, answer)


def choose(page, title: str, option: str) -> None:
    open_list(page)
    page.get_by_role("button", name=f"Options of “{title}”").press("Enter")
    page.get_by_role("button", name=option, exact=True).press("Enter")


def give_file(page, content: bytes) -> None:
    given = {"name": "given.json", "mimeType": "application/json", "buffer": content}
    page.locator("#file").set_input_files(given)


def test_conversations_stay_and_are_opened_by_keyboard(look):
    page = look
    begin(page, "apples", "red")
    begin(page, "bananas", "yellow")
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text("yellow")
    open_list(page)
    expect(titles(page)).to_have_text(["bananas", "apples"])
    expect(titles(page).first).to_have_attribute("aria-current", "true")
    titles(page).last.press("Enter")
    expect(page.locator(".answer > .text")).to_have_text("red")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    assert page.evaluate("() => measures.cutOff()") == []


def test_search_finds_titles_and_answers(look):
    page = look
    begin(page, "apples", "red **and** green")
    begin(page, "bananas", "yellow")
    open_list(page)
    for sought, found in (("GREEN", ["apples"]), ("bana", ["bananas"]), ("pears", [])):
        page.get_by_label("Search conversations").fill(sought)
        expect(titles(page)).to_have_text(found)
    expect(page.locator("#none")).to_have_text("None found")
    page.get_by_label("Search conversations").fill("")
    expect(titles(page)).to_have_count(2)


def test_rename_by_keyboard(look):
    page = look
    begin(page, "apples", "red")
    choose(page, "apples", "Rename")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.type("Fruit")
    page.keyboard.press("Enter")
    expect(titles(page)).to_have_text(["Fruit"])
    expect(titles(page)).to_be_focused()
    choose(page, "Fruit", "Rename")
    page.keyboard.type("else")
    page.keyboard.press("Escape")
    expect(titles(page)).to_have_text(["Fruit"])
    page.reload()
    open_list(page)
    expect(titles(page)).to_have_text(["Fruit"])


def test_deleted_conversation_comes_back_with_undo(look):
    page = look
    begin(page, "apples", "red")
    choose(page, "apples", "Delete")
    expect(titles(page)).to_have_count(0)
    expect(page.locator(".turn")).to_have_count(0)
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    page.keyboard.press("Enter")
    open_list(page)
    expect(titles(page)).to_have_text(["apples"])
    expect(page.locator(".answer > .text")).to_have_text("red")


def test_deleting_a_running_conversation_ends_its_request(page):
    scripted.answer_with(page, [b""], is_to_go_on=True)
    ask(page, "apples")
    expect(titles(page)).to_have_text(["apples"])
    choose(page, "apples", "Delete")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.reload()
    expect(page.locator("#none")).to_have_text("No conversations yet")


def test_export_then_import_elsewhere(visit, server):
    page, _ = visit(server)
    begin(page, "apples", "red")
    begin(page, "bananas", "yellow")
    with page.expect_download() as one:
        choose(page, "apples", "Export")
    assert one.value.suggested_filename == "apples.json"
    with page.expect_download() as every:
        page.get_by_role("button", name="Export all").click()
    content = every.value.path().read_bytes()
    exported = json.loads(content)["conversations"]
    assert [found["title"] for found in exported] == ["bananas", "apples"]
    assert json.loads(one.value.path().read_bytes())["conversations"] == exported[1:]
    other, _ = visit(server)
    give_file(other, content)
    expect(other.locator("#notice")).to_contain_text("Imported 2 conversations")
    expect(titles(other)).to_have_text(["bananas", "apples"])
    give_file(other, content)
    titles(other).last.click()
    expect(other.locator(".answer > .text")).to_have_text("red")
    expect(titles(other)).to_have_count(2)


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_named_and_changes_nothing(page, name):
    content, reason = BAD_FILES[name]
    begin(page, "apples", "red")
    give_file(page, content)
    expect(page.locator("#notice")).to_contain_text(f"The file was not imported: {reason}")
    expect(titles(page)).to_have_text(["apples"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("parent", "absent"), ("role", "system"), ("content", 5), ("tool_calls", [1]), ("id", "")],
)
def test_file_with_one_bad_message_changes_nothing(page, field, value):
    begin(page, "apples", "red")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    exported = json.loads(download.value.path().read_bytes())
    spoilt = json.loads(json.dumps(exported).replace(exported["conversations"][0]["id"], "new"))
    messages = spoilt["conversations"][0]["messages"]
    next(one for one in messages if one["role"] == "assistant")[field] = value
    give_file(page, json.dumps(spoilt).encode())
    expect(page.locator("#notice")).to_contain_text("The file was not imported: conversation 1")
    expect(titles(page)).to_have_text(["apples"])


def test_two_tabs_add_to_one_conversation(page, server):
    begin(page, "apples", "red")
    other = page.context.new_page()
    other.goto(server.url)
    titles(other).click()
    expect(other.locator(".answer > .text")).to_have_text("red")
    ask_for(page, "here", "one")
    expect(other.locator(".asked")).to_have_count(1)
    ask_for(other, "there", "two")
    begin(other, "bananas", "yellow")
    expect(titles(page)).to_have_text(["bananas", "apples"])
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text(["red", "two"])
    page.get_by_role("button", name="Previous version").click()
    expect(page.locator(".answer > .text")).to_have_text(["red", "one"])


def test_answer_cut_by_a_reload_is_kept_and_continued(page):
    begun = scripted.event_stream(scripted.chunk({"content": "The capital of"}), done=False)
    scripted.answer_with(page, [begun], is_to_go_on=True)
    ask(page, "question")
    expect(page.locator(".answer > .text")).to_have_text("The capital of")
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text("The capital of")
    assert facts(page).startswith("not finished")
    scripted.answer_with(page, answers(" France"))
    page.get_by_role("button", name="Continue").press("Enter")
    wait_until_done(page)
    expect(page.locator(".answer > .text")).to_have_text("The capital of France")


def test_full_storage_is_said_and_loses_nothing(page):
    begin(page, "apples", "red")
    page.evaluate(FILL_STORAGE)
    begin(page, "bananas", "yellow")
    expect(page.locator("#notice")).to_contain_text("storage is full")
    expect(titles(page)).to_have_text(["bananas", "apples"])
    titles(page).last.click()
    expect(page.locator(".answer > .text")).to_have_text("red")
    titles(page).first.click()
    expect(page.locator(".answer > .text")).to_have_text("yellow")
    page.evaluate("() => window.empty()")
    choose(page, "apples", "Delete")
    expect(titles(page)).to_have_text(["bananas"])
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text("yellow")


def test_answer_cut_by_a_reload_is_kept_beside_a_full_storage(page):
    begin(page, "apples", "red")
    begun = scripted.event_stream(scripted.chunk({"content": "The capital of"}), done=False)
    scripted.answer_with(page, [begun], is_to_go_on=True)
    ask(page, "question")
    expect(page.locator(".answer > .text").last).to_have_text("The capital of")
    page.add_init_script(f"({FILL_STORAGE})()")
    page.reload()
    expect(page.locator("#notice")).to_contain_text("storage is full")
    expect(page.locator(".answer > .text").last).to_have_text("The capital of")
    expect(titles(page)).to_have_text(["apples"])


def exported(page) -> dict:
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    return json.loads(download.value.path().read_bytes())


def test_messages_of_another_conversation_are_refused(page):
    begin(page, "apples", "red")
    file = exported(page)
    [given] = file["conversations"]
    give_file(page, json.dumps(file | {"conversations": [given | {"id": "new"}]}).encode())
    expect(page.locator("#notice")).to_contain_text("messages of another conversation")
    both = [given | {"id": "one"}, given | {"id": "two"}]
    give_file(page, json.dumps(file | {"conversations": both}).encode())
    expect(page.locator("#notice")).to_contain_text("messages of one id")
    give_file(page, json.dumps(file | {"conversations": [given | {"title": " "}]}).encode())
    expect(page.locator("#notice")).to_contain_text("conversation 1 has no valid title")
    expect(titles(page)).to_have_text(["apples"])


def test_long_conversation_is_imported_and_opened_soon(page):
    begin(page, "apples", "red")
    file = exported(page)
    given = sorted(file["conversations"][0]["messages"], key=lambda one: one["role"] != "user")
    messages = [
        given[at % 2] | {"id": f"m{at}", "parent": f"m{at - 1}" if at else None, "created": at}
        for at in range(NUM_MESSAGES)
    ]
    one = {"id": "long", "title": "long", "created": 1, "updated": 1, "messages": messages}
    one["leaf"] = messages[-1]["id"]
    began = time.monotonic()
    give_file(page, json.dumps(file | {"conversations": [one]}).encode())
    expect(page.locator("#notice")).to_contain_text("Imported 1 conversation")
    assert time.monotonic() - began < IMPORT_SECONDS


def test_title_being_edited_stays_while_another_tab_adds(page, server):
    begin(page, "apples", "red")
    begin(page, "bananas", "yellow")
    choose(page, "apples", "Rename")
    page.keyboard.type("pears")
    other = page.context.new_page()
    other.goto(server.url)
    titles(other).filter(has_text="apples").click()
    ask_for(other, "there", "two")
    page.keyboard.type(" and plums")
    page.keyboard.press("Enter")
    expect(titles(page)).to_have_text(["pears and plums", "bananas"])


def test_nothing_leaves_the_browser_but_the_requests(page):
    sent = keep_requests(page)
    begin(page, "apples", "red")
    stored = page.evaluate("() => JSON.stringify([localStorage, document.cookie])")
    assert "apples" not in stored
    assert sent == []


def test_conversation_deleted_in_another_tab_comes_back_whole_when_it_goes_on(page, server):
    begin(page, "apples", "red")
    other = page.context.new_page()
    other.goto(server.url)
    choose(other, "apples", "Delete")
    expect(titles(page)).to_have_count(0)
    ask_for(page, "more", "green")
    expect(titles(other)).to_have_text(["apples"])
    page.reload()
    expect(page.locator(".answer > .text")).to_have_text(["red", "green"])
