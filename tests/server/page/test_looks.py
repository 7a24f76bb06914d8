"""Both colour schemes, narrow to wide: contrast, names, landmarks, focus, nothing cut off."""

import pytest

from tests.server.page.actions import ask, wait_until_done

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed").expect

SIZES = {"phone": (360, 740), "tablet": (820, 1180), "desktop": (1280, 800), "wide": (1600, 900)}
INTERACTIVE = {"button", "textbox", "spinbutton", "switch", "link", "DisclosureTriangle"}
TAB_ORDER = [
    "Skip to the message",
    "Dark",
    "New",
    "Live",
    "Settings",
    "Conversation",
    "What is the capital of France?",
    "Which currency is used in Japan?",
    "On which continent is Kenya?",
    "Message",
    "Send",
]


def show_everything(page):
    """Settings open, an answer and an error on the page."""
    page.locator("#settings").evaluate("settings => { settings.open = true; }")
    ask(page, "What is the capital of France?")
    wait_until_done(page)
    page.get_by_label("Most tokens").fill("0")
    ask(page, "again")
    expect(page.get_by_role("alert")).to_be_visible()


def accessible_nodes(page):
    """(role, name) of all that Chromium hands to assistive software."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(visit, server, scheme):
    page, _ = visit(server, color_scheme=scheme, reduced_motion="reduce")
    show_everything(page)
    texts = page.evaluate("() => measures.texts()")
    assert len(texts) > 30
    assert [one for one in texts if one["contrast"] < one["asked"]] == []
    edges = page.evaluate("() => measures.edges()")
    assert len(edges) >= 5
    assert [one for one in edges if one["contrast"] < 3] == []


@pytest.mark.parametrize("name", SIZES)
def test_nothing_is_cut_off(visit, server, name):
    width, height = SIZES[name]
    page, _ = visit(server, viewport={"width": width, "height": height})
    show_everything(page)
    assert page.evaluate("() => measures.cutOff()") == []
    assert page.evaluate("() => measures.smallTargets()") == []
    expect(page.get_by_label("Message")).to_be_in_viewport()


def test_schemes_differ_and_the_toggle_is_kept(page):
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(ground) == light


def test_scheme_of_the_system_is_followed(page):
    page.emulate_media(color_scheme="dark")
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    page.emulate_media(color_scheme="light")
    expect(page.get_by_role("button", name="Dark")).to_be_visible()


def test_everything_has_a_name(visit, server):
    page, _ = visit(server)
    show_everything(page)
    nodes = accessible_nodes(page)
    controls = [(role, name) for role, name in nodes if role in INTERACTIVE]
    assert len(controls) >= 12
    assert [role for role, name in controls if not name] == []
    roles = {role for role, _ in nodes}
    assert {"banner", "main", "complementary", "region", "log", "alert", "status"} <= roles


def test_keyboard_alone(page):
    seen = []
    page.locator(".skip").focus()
    for _ in TAB_ORDER:
        focused = page.evaluate("() => measures.focus()")
        assert focused["isMarked"], focused
        seen.append(focused["name"])
        page.keyboard.press("Tab")
    assert seen == TAB_ORDER
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("What is the capital of Italy?")
    page.keyboard.press("Enter")
    expect(page.locator(".text")).to_have_text("Rome.")
    expect(page.get_by_label("Message")).to_be_focused()


def test_message_has_the_focus_at_first(page):
    expect(page.get_by_label("Message")).to_be_focused()


def test_reduced_motion_is_respected(visit, server):
    page, _ = visit(server, reduced_motion="reduce")
    assert page.evaluate("() => measures.moving()") == 0
