"""How Markdown looks in both schemes and at every size, and what drawing it costs."""

import time

import pytest

from tests import groups
from tests.server.page import samples, scripted
from tests.server.page.actions import ask, wait_until_done

expect = groups.imported("playwright.sync_api").expect

SIZES = {"phone": (360, 740), "desktop": (1280, 800), "desktop at 200 %": (640, 400)}
MOST_OF_A_CORE = 0.5
STREAM_SECONDS = 6
TOKENS_PER_SECOND = 200
STREAM = """async ([text, tokensPerSecond, seconds]) => {
  const tokens = text.match(/[^]{1,4}/g);
  const encoder = new TextEncoder();
  const began = performance.now();
  let sent = 0;
  while (performance.now() - began < 1000 * seconds) {
    const due = ((performance.now() - began) * tokensPerSecond) / 1000;
    for (; sent < due; sent += 1) {
      const delta = { content: tokens[sent % tokens.length] };
      const line = `data: ${JSON.stringify({ choices: [{ delta }] })}\\n\\n`;
      requests.goOnWith([encoder.encode(line)]);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return sent;
}"""
OUTSIDE = """() => {
  const { right, left } = document.querySelector(".answer").getBoundingClientRect();
  return Array.from(document.querySelectorAll(".text *"))
    .filter((node) => !node.closest("pre, .table, .formula"))
    .map((node) => [node, node.getBoundingClientRect()])
    .filter(([, box]) => box.left < left - 0.5 || box.right > right + 0.5)
    .map(([node]) => node.outerHTML.slice(0, 80));
}"""
SCROLLED = """() => Array.from(document.querySelectorAll(".code pre, .table"), (node) => {
  node.scrollLeft = 10_000;
  return [node.className || node.localName, node.scrollLeft > 0, node.tabIndex];
})"""


def show(page, text=samples.ANSWER):
    scripted.answer_with(page, [scripted.event_stream(scripted.chunk({"content": text}))])
    ask(page, "question")
    wait_until_done(page)
    page.wait_for_selector("math")
    page.wait_for_selector(".hljs-keyword")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_prose_and_code(visit, server, scheme):
    page, _ = visit(server, color_scheme=scheme, reduced_motion="reduce")
    show(page)
    texts = page.evaluate("() => measures.texts()")
    colours = page.locator(".code code span").evaluate_all(
        "all => new Set(all.map((one) => getComputedStyle(one).color)).size"
    )
    assert len(texts) > 60
    assert colours >= 5
    assert [one for one in texts if one["contrast"] < one["asked"]] == []


@pytest.mark.parametrize("name", SIZES)
def test_wide_blocks_scroll_by_themselves(visit, server, name):
    width, height = SIZES[name]
    page, _ = visit(server, viewport={"width": width, "height": height})
    show(page)
    excess = "all => all.map((one) => one.scrollWidth - one.clientWidth)"
    assert page.locator("html, #scroll").evaluate_all(excess) == [0, 0]
    assert page.evaluate(OUTSIDE) == []
    scrolled = page.evaluate(SCROLLED)
    assert ["pre", True, 0] in scrolled
    assert (["table", True, 0] in scrolled) == (name == "phone")
    assert page.evaluate("() => measures.smallTargets()") == ["on 16 16"] * 2


def test_code_and_tables_scroll_with_the_keyboard(visit, server):
    page, _ = visit(server, viewport={"width": 360, "height": 740})
    show(page)
    for name in ("Code", "Table"):
        region = page.get_by_role("region", name=name, exact=True)
        region.focus()
        assert page.evaluate("() => measures.focus().isMarked")
        page.keyboard.press("ArrowRight")
        expect(region).not_to_have_js_property("scrollLeft", 0)


def test_forced_colours_frame_code(visit, server):
    page, _ = visit(server, forced_colors="active")
    show(page)
    for selector in (".code", ".copy", "p > code"):
        expect(page.locator(f".text {selector}").first).to_have_css("border-top-style", "solid")


def test_right_to_left_blocks_have_their_own_direction(page):
    letters = "\N{HEBREW LETTER SHIN}\N{HEBREW LETTER LAMED}, \N{HEBREW LETTER MEM}!"
    scripted.answer_with(page, [scripted.event_stream(scripted.chunk({"content": f"- {letters}"}))])
    ask(page, "question")
    wait_until_done(page)
    left = "one => measures.leftOf('.text li', one)"
    assert page.evaluate(left, "!") < page.evaluate(left, letters[0])


def test_a_fast_stream_costs_less_than_half_a_core(page):
    show(page, "```python\nreturn $x\n```\n\n$x$")
    begin = scripted.event_stream(scripted.chunk({"content": "\n\n"}), done=False)
    scripted.answer_with(page, [begin], is_to_go_on=True)
    ask(page, "question")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def spent():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "ProcessTime")

    began, before = time.monotonic(), spent()
    sent = page.evaluate(STREAM, [samples.ANSWER, TOKENS_PER_SECOND, STREAM_SECONDS])
    share = (spent() - before) / (time.monotonic() - began)
    scripted.go_on_with(page, [scripted.event_stream()])
    wait_until_done(page)
    expect(page.locator(".text").last.locator("math")).not_to_have_count(0)
    assert sent > 0.9 * TOKENS_PER_SECOND * STREAM_SECONDS
    assert share < MOST_OF_A_CORE
