"""Answers as Markdown: what is drawn, what is kept while an answer streams, what is copied."""

import pytest

from tests import groups
from tests.server.page import samples, scripted
from tests.server.page.actions import ask, last_text, wait_until_done

expect = groups.imported("playwright.sync_api").expect

FIRST_LOAD_BYTES = 1_000_000
CLIPBOARD = ["clipboard-read", "clipboard-write"]
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { get: () => undefined });"
COUNTS = {
    "h3": 1,
    "h4": 1,
    "h6": 1,
    "strong": 2,
    "em": 1,
    "del": 1,
    "p > a": 1,
    "p > code": 1,
    ".code": 1,
    ".table table": 1,
    "tbody tr": 2,
    "td[align=right]": 4,
    "ol > li": 2,
    "ol ul > li": 1,
    "input[type=checkbox]:disabled": 2,
    "input:checked": 1,
    "blockquote br": 1,
    "hr": 1,
    "math": 4,
    ".displayed math": 2,
}
FORMULAS = {
    "$x^2$": 1,
    "$$x^2$$": 1,
    r"\(x^2\)": 1,
    r"\[x^2\]": 1,
    "$$\nx\n\n= y\n$$": 1,
    "text\n$$\nx\n$$\ntext": 1,
    "- item\n\n  $$\n  x\n  $$": 1,
    "**$a_1$** and $b_1$, $c$.": 3,
    "|$a$|\n|-|\n|$b$|": 2,
    "It costs $5 and $6.": 0,
    "Between $5-$6, or US$7 and A$8": 0,
    "`$x$` and $ x $": 0,
    "```\n$x$\n```": 0,
    r"\$x\$": 0,
    "$x": 0,
    r"$\frac{$": 0,
}
DRAW = """async (texts) => {
  const { MarkdownView } = await import("/page/view.js");
  const node = document.createElement("div");
  node.className = "text";
  document.querySelector("#log").replaceChildren(node);
  const view = new MarkdownView(node);
  for (const text of texts.slice(0, -1)) {
    view.rested = 0;
    view.update(text);
  }
  view.finish(texts.at(-1));
  return [node.innerHTML, view.text];
}"""
KEEP_BLOCKS = """() => {
  window.blocks = Array.from(document.querySelector(".text").children).slice(0, -1);
  window.changed = new Set();
  const observer = new MutationObserver((records) => records.forEach(({ target }) => {
    const at = window.blocks.findIndex((block) => block.contains(target));
    window.changed.add(at);
  }));
  observer.observe(document.querySelector(".text"),
    { childList: true, characterData: true, attributes: true, subtree: true });
}"""


@pytest.fixture
def answered(page):
    """Ask once; the answer is this text."""

    def answer(text):
        scripted.answer_with(page, [scripted.event_stream(scripted.chunk({"content": text}))])
        ask(page, "question")
        wait_until_done(page)
        return page.locator(".answer > .text").last

    return answer


def names(watch):
    return {address.rsplit("/", 1)[-1] for address in watch.addresses}


def draw(page, *texts):
    """The HTML of a view that was given these texts, once the libraries are there."""
    return page.evaluate(DRAW, list(texts))[0]


def load_libraries(page):
    page.evaluate(DRAW, [samples.ANSWER])
    page.wait_for_selector("math")
    page.wait_for_selector(".hljs-keyword")


def test_all_kinds_of_blocks(answered):
    text = answered(samples.ANSWER)
    for selector, count in COUNTS.items():
        expect(text.locator(selector), selector).to_have_count(count)
    expect(text).to_contain_text("costs $5 or $6.")


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas(answered, text):
    shown = answered(text)
    expect(shown.locator("math")).to_have_count(FORMULAS[text])
    if FORMULAS[text] == 0:
        assert "x" not in text or "x" in shown.text_content()


def test_a_formula_that_cannot_be_read_shows_its_source(answered):
    shown = answered(r"$\nonsense{x}$ and $y$")
    expect(shown.locator("math")).to_have_count(1)
    expect(shown).to_contain_text(r"$\nonsense{x}$")


def test_code_is_coloured_and_names_its_language(answered):
    code = answered("```python\nreturn 'x'\n```").locator(".code")
    expect(code.locator(".hljs-keyword")).to_have_text("return")
    expect(code.locator(".hljs-string")).to_have_text("'x'")
    expect(code.locator(".code-bar span")).to_have_text("python")


def test_code_of_an_unknown_language_stays_plain(answered):
    code = answered("```klingon\nreturn <b>\n```").locator(".code code")
    expect(code).to_have_text("return <b>")
    expect(code.locator("span")).to_have_count(0)


@pytest.mark.parametrize("way", ["clipboard", "selection"])
def test_code_is_copied_by_keyboard(visit, server, way):
    page, _ = visit(server)
    page.context.grant_permissions(CLIPBOARD)
    if way == "selection":
        page.evaluate("() => { window.original = navigator.clipboard; }")
        page.evaluate(NO_CLIPBOARD)
    stream = scripted.event_stream(scripted.chunk({"content": "```js\nconst a = '<b>';\n```"}))
    scripted.answer_with(page, [stream])
    ask(page, "question")
    wait_until_done(page)
    button = page.get_by_role("button", name="Copy code")
    button.focus()
    assert page.evaluate("() => measures.focus().isMarked")
    page.keyboard.press("Enter")
    copied = page.get_by_role("button", name="Copied")
    expect(copied).to_be_focused()
    read = "() => (window.original ?? navigator.clipboard).readText()"
    assert page.evaluate(read) == "const a = '<b>';"
    expect(button).to_have_text("Copy")


def test_links_open_elsewhere_and_tell_nothing(answered):
    shown = answered("[a](http://a.org) <b@c.org> https://d.org [e](/e) [f](javascript:f) [g](x:y)")
    links = shown.locator("a").evaluate_all("all => all.map((a) => [a.href, a.target, a.rel])")
    safe = ["_blank", "noopener noreferrer"]
    addresses = ["http://a.org/", "mailto:b@c.org", "https://d.org/"]
    assert links == [[address, *safe] for address in addresses]
    expect(shown).to_have_text("a b@c.org https://d.org e f g")


def test_images_are_links_and_not_fetched(visit, server):
    page, watch = visit(server)
    text = "![a cat](http://else.org/cat.png) ![](http://else.org/x.png) ![local](/cat.png)"
    scripted.answer_with(page, [scripted.event_stream(scripted.chunk({"content": text}))])
    ask(page, "question")
    wait_until_done(page)
    links = page.locator(".text a")
    expect(links).to_have_text(["a cat", "http://else.org/x.png"])
    expect(page.locator(".text")).to_contain_text("local")
    expect(page.locator(".text img")).to_have_count(0)
    assert not [one for one in watch.addresses if one.endswith(".png")]


def test_libraries_come_when_they_are_needed(visit, server):
    page, watch = visit(server)
    kinds = {"plain **text**": set(), "`code` block:\n```js\nlet a\n```": {"highlight.min.js"}}
    kinds["$x$"] = {"temml.min.js", "Temml-Local.css"}
    seen = names(watch)
    assert not {"highlight.min.js", "temml.min.js"} & seen
    for text, wanted in kinds.items():
        draw(page, text)
        page.wait_for_load_state("networkidle")
        assert {one for one in names(watch) - seen if one != "gauges"} == wanted
        seen = names(watch)


def test_first_load_is_small(page):
    sizes = page.evaluate(
        "() => performance.getEntries().filter((one) => one.transferSize)"
        ".map(({ name, transferSize }) => [name, transferSize])"
    )
    assert any("marked" in name for name, _ in sizes)
    assert sum(size for _, size in sizes) < FIRST_LOAD_BYTES


@pytest.mark.parametrize("step", [1, 7, 64])
def test_streamed_answer_is_drawn_as_the_whole_one(page, step):
    load_libraries(page)
    text = samples.ANSWER.replace("\n", "\r\n") if step == 7 else samples.ANSWER
    whole = draw(page, text)
    pieces = [text[:end] for end in range(0, len(text), step)]
    streamed, raw = page.evaluate(DRAW, [*pieces, text])
    assert streamed == whole
    assert raw == text


def test_references_may_be_defined_at_the_end(page):
    text = "[name][1]\n\nmore\n\n[1]: http://a.org\n"
    assert draw(page, *(text[:end] for end in range(len(text))), text) == draw(page, text)
    assert 'href="http://a.org"' in draw(page, text)


def test_view_can_go_on_after_its_end(page):
    shown = page.evaluate(
        """async () => {
          const { MarkdownView } = await import("/page/view.js");
          const view = new MarkdownView(document.createElement("div"));
          view.finish("one **two");
          view.finish("one **two** three");
          return [view.container.innerHTML.trim(), view.text];
        }"""
    )
    assert shown == ["<p>one <strong>two</strong> three</p>", "one **two** three"]


def test_only_the_last_block_is_drawn_again(page):
    chunk = scripted.chunk({"content": samples.ANSWER})
    scripted.answer_with(page, [scripted.event_stream(chunk, done=False)], is_to_go_on=True)
    ask(page, "question")
    page.wait_for_selector("math")
    page.wait_for_selector(".hljs-keyword")
    page.evaluate(KEEP_BLOCKS)
    for at in range(20):
        more = scripted.chunk({"content": f"word {at}\n\n"})
        scripted.go_on_with(page, [scripted.event_stream(more, done=False)])
    scripted.go_on_with(page, [scripted.event_stream()])
    wait_until_done(page)
    expect(page.locator(".text")).to_contain_text("word 19")
    assert page.evaluate("() => blocks.length > 10 && blocks.every((one) => one.isConnected)")
    assert page.evaluate("() => Array.from(changed)") == [-1]


def test_copied_code_stays_copied_while_its_block_grows(page):
    page.context.grant_permissions(CLIPBOARD)
    chunk = scripted.chunk({"content": "```js\nlet a;\n"})
    scripted.answer_with(page, [scripted.event_stream(chunk, done=False)], is_to_go_on=True)
    ask(page, "question")
    page.get_by_role("button", name="Copy code").press("Enter")
    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    more = scripted.chunk({"content": "let b;\n"})
    scripted.go_on_with(page, [scripted.event_stream(more, done=False)])
    expect(page.locator(".code code")).to_contain_text("let b;")
    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    scripted.go_on_with(page, [scripted.event_stream()])
    wait_until_done(page)


def test_thoughts_are_markdown_too(page):
    stream = scripted.event_stream(
        scripted.chunk({"reasoning_content": "I **think**"}), scripted.chunk({"content": "*So*"})
    )
    scripted.answer_with(page, [stream])
    ask(page, "question")
    wait_until_done(page)
    expect(page.locator(".thought strong")).to_have_text("think")
    assert last_text(page) == "So"
    expect(page.locator(".answer > .text em")).to_have_text("So")
