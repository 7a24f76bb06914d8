"""What a model, a name or a tool says is shown and does nothing, however much it is."""

import json

import pytest

from tests import groups
from tests.server.page import samples, scripted
from tests.server.page.actions import ask, wait_until_done

expect = groups.imported("playwright.sync_api").expect

LONGEST_TASK_MS = 1500
DRAWN_MS = 60_000
MEGABYTE = 1_000_000
LARGE = {
    "prose": "lorem **ipsum** `dolor`\n\n",
    "line": "x",
    "answers": samples.ANSWER + "\n",
    "code": "```python\n" + "value = call(1, 'text')  # text\n" * 40 + "```\n\n",
}
FOUND = """() => {
  const log = document.querySelector("#log");
  const all = Array.from(log.querySelectorAll("*"));
  const given = (node) => Array.from(node.attributes).map(({ name, value }) => [name, value]);
  return {
    tags: Array.from(new Set(all.map(({ localName }) => localName))),
    handlers: all.flatMap(given).filter(([name]) => name.startsWith("on")),
    addresses: all.flatMap(given).filter(([name]) => /href|src|action|data$/.test(name)),
    ids: all.filter(({ id }) => id !== "").map(({ id }) => id),
    styles: all.flatMap(given).filter(([name, value]) => name === "style" && value.includes("url")),
    isHarmed: window.isHarmed ?? false,
    isWide: document.documentElement.scrollWidth > innerWidth,
  };
}"""
FORBIDDEN = {"script", "img", "svg", "iframe", "object", "embed", "style", "link", "form", "base"}
FORBIDDEN |= {"meta", "video", "audio", "source", "image", "maction", "annotation-xml"}
SAFE = ("http://", "https://", "mailto:")
IS_DRAWN = """() => {
  const { lastChild } = document.querySelector(".answer > .text");
  return lastChild?.textContent.endsWith("the end");
}"""
WATCH_TASKS = """() => {
  window.tasks = [0];
  const note = (list) => list.getEntries().forEach(({ duration }) => tasks.push(duration));
  new PerformanceObserver(note).observe({ entryTypes: ["longtask"] });
}"""


def answer(page, *chunks):
    scripted.answer_with(page, [scripted.event_stream(*chunks)])
    ask(page, "question")
    wait_until_done(page)


def assert_harmless(page):
    page.wait_for_load_state("networkidle")
    found = page.evaluate(FOUND)
    assert FORBIDDEN & set(found["tags"]) == set()
    assert found["handlers"] == found["ids"] == found["styles"] == []
    assert [one for _, one in found["addresses"] if not one.startswith(SAFE)] == []
    assert found["isHarmed"] is False
    assert found["isWide"] is False


@pytest.mark.parametrize("name", samples.HARMFUL)
def test_harmful_answer_only_shows(page, name):
    text = samples.HARMFUL[name]
    answer(
        page,
        scripted.chunk({"reasoning_content": text}),
        scripted.chunk({"content": f"{text}\n\nthe end"}),
        scripted.call(0, name=text, arguments=text),
    )
    assert_harmless(page)
    assert page.locator(".call code").text_content() == text
    assert page.locator(".call pre").text_content() == text
    expect(page.locator(".answer > .text")).to_contain_text("end")
    expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("name", ["script", "image", "svg", "links"])
def test_harmful_model_name_only_shows(page, name):
    text = samples.HARMFUL[name].split("\n")[0]

    def rename(route):
        gauges = route.fetch().json() | {"model": text, "device": text}
        route.fulfill(body=json.dumps(gauges), content_type="application/json")

    page.route("**/gauges", rename)
    expect(page.locator("#model")).to_have_text(text)
    expect(page.locator("#device")).to_have_text(text)
    assert page.locator(".identity img, .identity script, .identity svg").count() == 0
    assert page.evaluate("() => window.isHarmed ?? false") is False
    page.unroute_all(behavior="ignoreErrors")


def test_a_violation_of_the_policy_is_seen(visit, server):
    page, watch = visit(server)
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.isHarmed = true";
          document.body.append(script);
        }"""
    )
    assert page.evaluate("() => window.isHarmed ?? false") is False
    assert any("Content Security Policy" in one for one in watch.said)


@pytest.mark.parametrize("name", samples.DEEP)
def test_deep_nesting_does_not_freeze(page, name):
    page.evaluate(WATCH_TASKS)
    answer(page, scripted.chunk({"content": f"{samples.DEEP[name]}\n\nthe end"}))
    expect(page.locator(".answer > .text")).to_contain_text("the end")
    assert_harmless(page)
    assert page.evaluate("() => Math.max.apply(null, tasks)") < LONGEST_TASK_MS


@pytest.mark.parametrize("name", LARGE)
def test_a_megabyte_does_not_freeze(page, name):
    unit = LARGE[name]
    text = unit * (MEGABYTE // len(unit))
    page.evaluate(WATCH_TASKS)
    answer(page, scripted.chunk({"content": f"{text}\n\nthe end"}))
    page.wait_for_function(IS_DRAWN, timeout=DRAWN_MS)
    assert_harmless(page)
    assert page.evaluate("() => Math.max.apply(null, tasks)") < LONGEST_TASK_MS
    if name == "line":
        assert len(page.locator(".answer > .text").text_content()) >= MEGABYTE
