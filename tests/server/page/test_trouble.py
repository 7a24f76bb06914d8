"""A server with keys, killed and started again under the eyes of the page."""

from urllib.parse import urlsplit

import pytest

from tests import groups
from tests.server.page.actions import ask, last_text, make_answers_long, wait_until_done
from tests.server.serving import ServerProcess

expect = groups.imported("playwright.sync_api").expect

KEY = "the right key"
FRANCE = "What is the capital of France?"


@pytest.fixture
def keyed(start_server, tmp_path, endless_model):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    return start_server(*endless_model, "--api-key-file", keys)


def enter_key(page, key):
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(
    "key", ["\N{CYRILLIC SMALL LETTER KA}", "schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel"]
)
def test_key_that_no_header_carries_is_named(visit, server, key):
    page, _ = visit(server)
    page.get_by_role("button", name="API key").click()
    enter_key(page, key)
    expect(page.get_by_role("alert")).to_have_text(
        "The API key has characters that cannot be sent."
    )
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_keys_then_death_then_return(visit, keyed, tmp_path):
    page, _ = visit(keyed)
    alert = page.get_by_role("alert")
    dialog = page.get_by_role("dialog", name="API key")
    expect(alert).to_have_text("This server asks for an API key.")
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    enter_key(page, "a wrong key")
    expect(alert).to_have_text("The server does not accept this key.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    ask(page, FRANCE)
    expect(dialog).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(alert).to_contain_text("incorrect API key")
    page.get_by_role("button", name="Try again").click()
    enter_key(page, KEY)
    expect(page.get_by_label("Message")).to_be_focused()
    wait_until_done(page)
    assert last_text(page) == "Paris."
    expect(alert).to_have_count(0)
    page.get_by_label("Max tokens").focus()
    expect(page.locator("[name=max_tokens] + .default")).to_have_text("≤ 65,536")
    assert KEY not in page.evaluate("() => JSON.stringify(localStorage)")
    assert page.evaluate("() => sessionStorage.getItem('glm.key')") == KEY

    make_answers_long(page)
    ask(page, FRANCE)
    expect(page.locator(".text").last).to_contain_text("Paris")
    keyed.process.kill()
    expect(alert).to_contain_text("The server cannot be reached.")
    state = page.locator("#state")
    expect(state).to_have_text("Server unreachable")
    expect(page.locator("#live")).to_have_attribute("data-stale", "")

    again = ServerProcess(tmp_path, "--port", str(urlsplit(keyed.url).port))
    try:
        expect(state).to_have_text("Ready")
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        wait_until_done(page)
        assert last_text(page) == "Paris."
    finally:
        again.stop()
