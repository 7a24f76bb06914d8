"""Questions and answers against the real server: streaming, stopping, going on, beginning anew."""

import re

import pytest

from tests import groups
from tests.server.page.actions import (
    CHAT,
    ask,
    facts,
    keep_requests,
    last_text,
    make_answers_long,
    wait_until_done,
)

expect = groups.imported("playwright.sync_api").expect

DENIED_STORAGE = """
for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
  const get = () => {
    throw new DOMException("denied", "SecurityError");
  };
  Object.defineProperty(window, name, { get });
}
"""
SPOILT_STORAGE = "localStorage.setItem('glm.settings', '{spoilt');"
NUMBER_STORED = "localStorage.setItem('glm.settings', '5');"
STORAGES = {"denied": DENIED_STORAGE, "spoilt": SPOILT_STORAGE, "number": NUMBER_STORED}
NOTE_LENGTHS = """() => {
  window.lengths = [];
  const note = () => window.lengths.push(document.querySelector(".text")?.textContent.length ?? 0);
  const observed = { childList: true, characterData: true, subtree: true };
  new MutationObserver(note).observe(document.querySelector("#log"), observed);
}"""
FRANCE = "What is the capital of France?"
OPENER = "What can you help me with?"


def test_question_is_answered(page):
    ask(page, FRANCE)
    wait_until_done(page)
    assert last_text(page) == "Paris."
    assert "first token after" in facts(page)
    expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
    expect(page.locator(".answer")).to_have_attribute("aria-busy", "false")


def test_opener_asks_its_own_text(page):
    sent = keep_requests(page)
    page.get_by_role("button", name=OPENER).click()
    wait_until_done(page)
    assert sent[0]["messages"] == [{"role": "user", "content": OPENER}]
    assert last_text(page) != ""
    expect(page.locator("#welcome")).to_be_hidden()


@pytest.mark.parametrize("way", ["Send", OPENER], ids=["send", "opener"])
@pytest.mark.parametrize("key", ["Space", "Enter"])
def test_focus_is_in_the_message_after_a_button_sent_it(endless_page, way, key):
    page = endless_page
    make_answers_long(page)
    page.get_by_label("Message").fill("Who?")
    page.get_by_role("button", name=way).press(key)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.press("Escape")
    wait_until_done(page)
    expect(page.get_by_label("Message")).to_be_focused()


def test_answer_arrives_in_pieces(endless_page):
    page = endless_page
    make_answers_long(page)
    page.evaluate(NOTE_LENGTHS)
    ask(page, FRANCE)
    page.wait_for_function("() => lengths.length > 5 && lengths.at(-1) > 200")
    page.keyboard.press("Escape")
    lengths = page.evaluate("() => lengths")
    assert lengths == sorted(lengths)


def test_gauges_move_while_an_answer_streams(endless_page):
    page = endless_page
    make_answers_long(page)
    ask(page, FRANCE)
    gauge = page.locator(".gauge", has_text="Batch occupancy")
    expect(gauge.locator(".note")).to_contain_text("1 of ")
    part = gauge.locator(".bar i")
    expect(part).not_to_have_css("width", "0px")
    rate = page.locator(".gauge", has_text="Throughput").locator("b")
    expect(rate).not_to_have_text("0.00")
    page.keyboard.press("Escape")
    expect(gauge.locator(".note")).to_contain_text("0 of ")
    expect(part).to_have_css("width", "0px")


@pytest.mark.parametrize("way", ["button", "Escape"])
def test_stopping_frees_the_request(endless_page, endless_server, way):
    page = endless_page
    make_answers_long(page)
    ask(page, FRANCE)
    expect(page.locator(".text")).to_contain_text("Paris")
    if way == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    wait_until_done(page)
    assert facts(page).startswith("stopped")
    length = len(last_text(page))
    endless_server.wait_until_idle()
    assert len(last_text(page)) == length
    expect(page.get_by_label("Message")).to_be_focused()


def test_earlier_turns_are_sent_along(page):
    sent = keep_requests(page)
    ask(page, FRANCE)
    wait_until_done(page)
    ask(page, "On which continent is Kenya?")
    wait_until_done(page)
    assert [(one["role"], one["content"]) for one in sent[1]["messages"]] == [
        ("user", FRANCE),
        ("assistant", "Paris."),
        ("user", "On which continent is Kenya?"),
    ]
    assert last_text(page) == "Africa."


def test_new_conversation_forgets_and_the_other_goes_on(endless_page, endless_server):
    page = endless_page
    sent = keep_requests(page)
    make_answers_long(page)
    ask(page, FRANCE)
    expect(page.locator(".text")).to_contain_text("Paris")
    page.get_by_role("button", name="New").click()
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#welcome")).to_be_visible()
    with page.expect_request(CHAT):
        ask(page, "Who?")
    page.keyboard.press("Escape")
    wait_until_done(page)
    assert [len(one["messages"]) for one in sent] == [1, 1]
    running = page.locator("[data-running]")
    expect(running).to_have_count(1)
    expect(running).to_have_text(re.compile("capital of France"))
    running.get_by_role("button").first.click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.keyboard.press("Escape")
    wait_until_done(page)
    expect(running).to_have_count(0)
    endless_server.wait_until_idle()


def test_settings_reach_the_request_and_stay(page):
    sent = keep_requests(page)
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Max tokens").fill("2")
    page.get_by_label("System prompt").fill("Be brief.")
    ask(page, FRANCE)
    wait_until_done(page)
    assert (sent[0]["temperature"], sent[0]["max_tokens"]) == (0.5, 2)
    assert sent[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert facts(page).startswith("Max tokens reached · 2 tokens")
    page.reload()
    kept = [page.locator(f"[name={name}]").input_value() for name in ("temperature", "max_tokens")]
    assert kept == ["0.5", "2"]


def test_two_tabs_keep_each_others_settings(page, server):
    other = page.context.new_page()
    other.goto(server.url)
    page.get_by_label("System prompt").fill("Be brief.")
    other.get_by_label("Max tokens").fill("7")
    page.get_by_label("Thinking", exact=True).select_option("On")
    other.reload()
    assert other.locator("[name=system]").input_value() == "Be brief."
    assert other.locator("[name=max_tokens]").input_value() == "7"
    assert other.locator("[name=thinking]").input_value() == "on"


@pytest.mark.parametrize("script", STORAGES.values(), ids=STORAGES)
def test_page_works_without_its_storage(page, script):
    page.add_init_script(script)
    page.reload()
    ask(page, FRANCE)
    wait_until_done(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Dark").click()
    expect(page.get_by_role("button", name="Light")).to_be_visible()


def test_empty_message_is_not_sent(page):
    sent = keep_requests(page)
    for text in ("", "  ", "\n"):
        page.get_by_label("Message").fill(text)
        page.get_by_role("button", name="Send").click()
    assert sent == []
    expect(page.locator(".turn")).to_have_count(0)


def test_shift_enter_begins_a_line(page):
    sent = keep_requests(page)
    prompt = page.get_by_label("Message")
    prompt.press_sequentially("one")
    prompt.press("Shift+Enter")
    prompt.press_sequentially("two")
    assert prompt.input_value() == "one\ntwo"
    assert sent == []
