"""`python -m tests.server.page.screenshots`: the page under load, into docs/images/."""

import subprocess
import sys
import tempfile
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

from tests.server.page import scripted
from tests.server.page.actions import CHAT, ask, wait_until_done
from tests.server.page.conftest import chromium
from tests.server.serving import ENVIRONMENT, ROOT, ServerProcess

FOLDER = ROOT / "docs" / "images"
PARALLEL = ("--rate", "inf", "--requests", "1000", "--max-concurrency", "5")
LENGTHS = ("--prompts", "uniform:16:128", "--outputs", "uniform:32:256")
TRACE_MS = 45_000
SLOW_LINE = ROOT / "tests" / "server" / "page" / "slow_line.js"
EVENT_PAUSE_MS = 600
QUESTIONS = (
    "What is the capital of France?",
    "Which currency is used in Japan?",
    "On which continent is Kenya?",
)
LONG = "What is the capital of Brunei?"
SAMPLE_QUESTION = "Explain recursion with a short program"
SAMPLE = """A function that calls **itself** on a smaller problem until one is simple:

```python
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)
```

| n | calls | result |
|--:|------:|-------:|
| 3 | 4 | 6 |
| 10 | 11 | 3,628,800 |

Each call waits for the next, so memory grows as $O(n)$.
"""
SAMPLE_USAGE = {"prompt_tokens": 14, "completion_tokens": 118}
IS_HALF_WAY = """() => {
  const last = Array.from(document.querySelectorAll(".answer")).at(-1);
  return last.ariaBusy === "true" && last.querySelector(".text")?.textContent.length > 9;
}"""
LIGHT = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}
DARK = {**LIGHT, "color_scheme": "dark"}
NARROW = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2}


@contextmanager
def loaded_server(folder):
    """A server that other clients keep busy."""
    server = ServerProcess(folder, "--num-pages", 512, "--max-batch", 8)
    command = [sys.executable, "-m", "glm_engine", "load", server.url, *PARALLEL, *LENGTHS]
    load = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        yield server
    finally:
        load.terminate()
        load.wait()
        server.stop()


def converse(page):
    for question in QUESTIONS:
        ask(page, question)
        wait_until_done(page)


def save(page, name):
    path = FOLDER / f"page-{name}.png"
    page.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def show_sample(page):
    """An answer in Markdown, which the model of the pictures does not write."""
    usage = {"choices": [], "usage": SAMPLE_USAGE}
    body = scripted.event_stream(scripted.chunk({"content": SAMPLE}), usage)
    page.route(CHAT, lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_role("button", name="New").press("Enter")
    ask(page, SAMPLE_QUESTION)
    wait_until_done(page)
    page.locator(".displayed, math").first.wait_for()


def save_streaming(page):
    """Over a slow line, so that the answer is on its way for seconds."""
    page.evaluate("pause => { window.eventPauseMs = pause; }", EVENT_PAUSE_MS)
    ask(page, LONG)
    page.wait_for_function(IS_HALF_WAY)
    save(page, "streaming")


def take_all(browser, url):
    pages = {}
    for name, options in {"light": LIGHT, "dark": DARK, "narrow": NARROW}.items():
        pages[name] = browser.new_page(**options)
        pages[name].add_init_script(path=SLOW_LINE)
        pages[name].goto(url)
    pages["light"].wait_for_timeout(TRACE_MS)
    for page in pages.values():
        converse(page)
    save(pages["narrow"], "narrow")
    for name in ("light", "dark"):
        show_sample(pages[name])
        pages[name].wait_for_timeout(500)
        save(pages[name], name)
    pages["light"].unroute_all()
    save_streaming(pages["light"])


def main():
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        loaded_server(folder) as server,
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=chromium()) as browser,
    ):
        take_all(browser, server.url)


if __name__ == "__main__":
    main()
