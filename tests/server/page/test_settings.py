"""The model's own defaults, what a user changes of them, and that all is in reach."""

import pytest

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import (
    LOOKS,
    answers,
    ask,
    last_request,
    open_drawer,
    wait_until_done,
)

expect = groups.imported("playwright.sync_api").expect

ALWAYS_SENT = {"model", "messages", "stream", "stream_options"}
CHANGES = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "seed": 7,
    "max_tokens": 100,
    "thinking_token_budget": 50,
}
DEFAULTS = {
    "temperature": "0",
    "top_p": "1",
    "top_k": "0",
    "min_p": "0",
    "repetition_penalty": "1",
    "presence_penalty": "0",
    "max_tokens": "≤ 4,096",
    "seed": "random",
}


def asked(page) -> dict:
    scripted.answer_with(page, answers("one"))
    ask(page, "question")
    wait_until_done(page)
    return last_request(page)


def test_unchanged_settings_are_not_sent(page):
    assert set(asked(page)) == ALWAYS_SENT


def test_settings_that_the_browser_does_not_keep_are_named(page):
    page.evaluate(
        "() => { Storage.prototype.setItem = () => { throw new DOMException('', 'Quota'); }; }"
    )
    page.get_by_label("Temperature").fill("1")
    expect(page.locator("#notice")).to_contain_text("did not keep these settings")
    assert asked(page)["temperature"] == 1


def test_defaults_of_the_model_are_shown(page):
    for name, value in DEFAULTS.items():
        expect(page.locator(f"[name={name}] + .default")).to_have_text(value)
    page.get_by_label("Temperature").fill("1")
    expect(page.locator("[name=temperature] + .default")).to_be_hidden()


def test_server_names_the_defaults(server):
    [card] = server.http.get("/v1/models").json()["data"]
    assert card["default_sampling_params"] == {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize("look", LOOKS)
def test_changes_are_sent_until_they_are_reset(visit, server, look):
    page, _ = visit(server, **LOOKS[look])
    open_drawer(page, "panel")
    for name, value in CHANGES.items():
        field = page.locator(f"[name={name}]")
        field.focus()
        page.keyboard.type(str(value))
    page.get_by_label("Stop sequences").fill("END\nSTOP")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Thinking", exact=True).select_option("Off")
    expect(page.locator("#changed")).to_have_text(f"{len(CHANGES) + 2} changed")
    page.keyboard.press("Escape")
    request = asked(page)
    assert {name: request[name] for name in CHANGES} == CHANGES
    assert request["stop"] == ["END", "STOP"]
    assert request["chat_template_kwargs"] == {"enable_thinking": False}
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    page.reload()
    open_drawer(page, "panel")
    page.get_by_role("button", name="Reset to").press("Enter")
    expect(page.locator("[name=max_tokens] + .default")).to_have_text(DEFAULTS["max_tokens"])
    page.keyboard.press("Escape")
    assert set(asked(page)) == ALWAYS_SENT


def test_all_settings_are_in_reach_with_the_gauges_open(page):
    expect(page.locator(".gauge")).to_have_count(6)
    assert page.locator("#live").get_attribute("open") is not None
    controls = page.locator("#settings-form").locator("input, select, textarea, button")
    expect(controls).to_have_count(15)
    for at in range(15):
        expect(controls.nth(at)).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("size", [(360, 740), (640, 400)], ids=["narrow", "200 %"])
def test_drawers_open_and_close_by_keyboard(visit, server, size):
    page, _ = visit(server, viewport={"width": size[0], "height": size[1]})
    for name, first in (("Conversations", "Search conversations"), ("Gauges", "System prompt")):
        button = page.locator("header").get_by_role("button", name=name)
        expect(page.get_by_label(first)).to_be_hidden()
        button.press("Enter")
        expect(page.get_by_label(first)).to_be_visible()
        page.get_by_label(first).focus()
        assert page.evaluate("() => measures.focus().isMarked")
        page.keyboard.press("Escape")
        expect(page.get_by_label(first)).to_be_hidden()
        expect(button).to_be_focused()
