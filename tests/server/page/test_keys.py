"""The dialogue that asks for an API key, in all looks and by keyboard alone."""

import json

import pytest

from tests import groups
from tests.server.page.actions import LOOKS, ask, last_text, wait_until_done

expect = groups.imported("playwright.sync_api").expect

KEY = "the right key"
REFUSAL = json.dumps({"error": {"message": "incorrect API key"}})


def guard(route) -> None:
    if route.request.headers.get("authorization") == f"Bearer {KEY}":
        route.continue_()
    else:
        route.fulfill(status=401, body=REFUSAL, content_type="application/json")


@pytest.mark.parametrize("look", LOOKS)
def test_key_is_asked_for_at_the_start(visit, server, look):
    page, _ = visit(server, reduced_motion="reduce", **LOOKS[look])
    page.route("**/v1/**", guard)
    page.reload()
    dialog = page.get_by_role("dialog", name="API key")
    reason = dialog.get_by_role("alert")
    expect(reason).to_have_text("This server asks for an API key.")
    assert page.evaluate("() => measures.cutOff()") == []
    assert page.evaluate("() => measures.smallTargets()") == []
    texts = page.evaluate("() => measures.texts()")
    assert [one for one in texts if one["contrast"] < one["asked"]] == []
    assert page.evaluate("() => measures.focus()") == {"name": "Key", "isMarked": True}
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(reason).to_have_text("The server does not accept this key.")
    page.keyboard.type(KEY)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("[name=max_tokens] + .default")).to_have_text("≤ 4,096")
    ask(page, "What is the capital of France?")
    wait_until_done(page)
    assert last_text(page) == "Paris."
    assert KEY not in page.evaluate("() => JSON.stringify(localStorage)")
    page.reload()
    expect(page.locator("[name=max_tokens] + .default")).to_have_text("≤ 4,096")
    expect(dialog).to_be_hidden()


def test_key_that_expires_is_asked_for_in_the_middle(visit, server):
    page, _ = visit(server)
    page.route("**/v1/**", guard)
    ask(page, "What is the capital of France?")
    page.get_by_label("Key", exact=True).fill(KEY)
    page.keyboard.press("Enter")
    wait_until_done(page)
    assert last_text(page) == "Paris."


def test_an_answer_to_an_earlier_request_does_not_ask_again(visit, server):
    page, _ = visit(server)
    refused, late = [], []

    def refuse(route) -> None:
        if refused and route.request.headers.get("authorization"):
            late.append(route)
        else:
            refused.append(route)
            guard(route)

    page.route("**/v1/**", refuse)
    page.reload()
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    refused.clear()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("The server does not accept this key.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert len(late) == 1
    with page.expect_response("**/v1/models"):
        guard(late[0])
    page.wait_for_timeout(300)
    expect(dialog).to_be_hidden()
