"""Both colour schemes, narrow to wide: contrast, names, landmarks, focus, nothing cut off."""

import pytest

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import ask, open_drawer, wait_until_done

expect = groups.imported("playwright.sync_api").expect

SIZES = {
    "phone": (360, 740),
    "tablet": (820, 1180),
    "desktop": (1280, 800),
    "wide": (1600, 900),
    "desktop at 150 %": (853, 533),
    "desktop at 200 %": (640, 400),
    "laptop at 200 %": (683, 384),
    "720 lines at 200 %": (640, 360),
    "low": (768, 432),
}
LEAST_CONVERSATION_PX = 100
LONG_MESSAGE = "one line\n" * 30
BEGUN = scripted.event_stream(scripted.chunk({"content": "Par"}), done=False)
EVERY_KIND = (
    scripted.chunk({"reasoning_content": "a thought"}),
    scripted.chunk({"content": "an answer"}),
    scripted.call(0, name="call", arguments="{}"),
)
RIGHT_TO_LEFT = "\N{HEBREW LETTER SHIN}\N{HEBREW LETTER LAMED}, \N{HEBREW LETTER MEM}!"
INTERACTIVE = {"button", "textbox", "searchbox", "spinbutton", "combobox", "link"}
TAB_ORDER = [
    "Skip to the message",
    "Dark colours",
    "New conversation",
    "Search conversations",
    "Import",
    "Conversation",
    "What can you help me with?",
    "Explain recursion with a short program",
    "Compare tea and coffee in a table",
    "Message",
    "Send",
    "Live",
    "Settings",
    "System prompt",
    "Temperature",
    "Top P",
    "Top K",
    "Min P",
    "Max tokens",
    "Seed",
    "Presence penalty",
    "Frequency penalty",
    "Repetition penalty",
    "Thinking",
    "Thinking budget",
    "Stop sequences, one a line",
    "API key",
]


def show_everything(page):
    """An answer and an error on the page."""
    ask(page, "What is the capital of France?")
    wait_until_done(page)
    open_drawer(page, "panel")
    page.get_by_label("Max tokens").fill("0")
    page.keyboard.press("Escape")
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
    page.route("**/gauges", lambda route: route.abort())
    expect(page.locator("#state")).to_have_text("Server unreachable")
    stale = page.evaluate("() => measures.texts()")
    assert [one for one in stale if one["contrast"] < one["asked"]] == []
    edges = page.evaluate("() => measures.edges()")
    assert len(edges) >= 5
    assert [one for one in edges if one["contrast"] < 3] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_what_comes_and_goes(visit, server, scheme):
    page, _ = visit(server, color_scheme=scheme, reduced_motion="reduce")
    scripted.answer_with(page, [scripted.event_stream(*EVERY_KIND)])
    ask(page, "question")
    wait_until_done(page)
    page.get_by_role("button", name="Regenerate").click()
    wait_until_done(page)
    page.locator(".thought > summary").click()
    page.get_by_role("button", name="Edit").click()
    give = {"name": "given.json", "mimeType": "application/json", "buffer": b"{"}
    page.locator("#file").set_input_files(give)
    expect(page.locator("#notice")).to_be_visible()
    page.locator(".more").click()
    expect(page.get_by_role("button", name="Rename")).to_be_visible()
    texts = page.evaluate("() => measures.texts()")
    shown = {one["text"] for one in texts}
    assert {"2/2", "a thought", "call", "Cancel", "Rename", "Delete", "question"} <= shown
    assert [one for one in texts if one["contrast"] < one["asked"]] == []
    assert page.evaluate("() => measures.smallTargets()") == []


@pytest.mark.parametrize("name", SIZES)
def test_nothing_is_cut_off(visit, server, name):
    width, height = SIZES[name]
    page, _ = visit(server, viewport={"width": width, "height": height})
    show_everything(page)
    for drawer in ("sidebar", "panel"):
        open_drawer(page, drawer)
        assert page.evaluate("() => measures.cutOff()") == []
        assert page.evaluate("() => measures.smallTargets()") == []
        page.keyboard.press("Escape")
    assert page.evaluate("() => measures.smallTargets()") == []
    assert page.evaluate("() => measures.conversation()") >= LEAST_CONVERSATION_PX
    expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)
    page.get_by_label("Message").fill(LONG_MESSAGE)
    assert page.evaluate("() => measures.conversation()") >= LEAST_CONVERSATION_PX
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)


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


@pytest.mark.parametrize("wish", ["reduce", "no-preference"])
def test_reduced_motion_is_respected_while_an_answer_streams(visit, server, wish):
    page, _ = visit(server, reduced_motion=wish)
    scripted.answer_with(page, [BEGUN], is_to_go_on=True)
    ask(page, "question")
    expect(page.locator(".text")).to_have_text("Par")
    moving = page.evaluate("() => measures.moving()")
    assert moving == [] if wish == "reduce" else "DIV under::before" in moving


def left_of(page, selector, text):
    return page.evaluate("([one, text]) => measures.leftOf(one, text)", [selector, text])


def test_each_paragraph_has_its_own_direction(page):
    chunk = scripted.chunk({"content": f"{RIGHT_TO_LEFT}\n\nParis?"})
    scripted.answer_with(page, [scripted.event_stream(chunk)])
    ask(page, RIGHT_TO_LEFT)
    wait_until_done(page)
    first, last = RIGHT_TO_LEFT[0], RIGHT_TO_LEFT[-1]
    assert left_of(page, ".asked", last) < left_of(page, ".asked", first)
    assert left_of(page, ".text", last) < left_of(page, ".text", first)
    assert left_of(page, ".text", "P") < left_of(page, ".text", "?") < left_of(page, ".text", last)
    bidi = "(fields) => fields.map((one) => getComputedStyle(one).unicodeBidi)"
    assert page.locator("textarea").evaluate_all(bidi) == ["plaintext"] * 3


def picture_of(page, selector):
    return page.locator(selector).screenshot(animations="disabled")


def test_forced_colours_show_the_focus(visit, server):
    page, _ = visit(server, forced_colors="active", reduced_motion="reduce")
    page.get_by_label("Message").focus()
    assert page.evaluate("() => measures.focus().isMarked")
