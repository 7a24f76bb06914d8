"""Chromium, one for the folder, and pages of it that may do nothing unseen."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import groups
from tests.server.page.actions import LOOKS
from tests.server.serving import PATIENCE_SECONDS

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
HERE = Path(__file__).resolve().parent
SCRIPTS = (HERE / "measures.js", HERE / "requests.js")
DESKTOP = {"width": 1280, "height": 800}
PATIENCE_MS = 1000 * PATIENCE_SECONDS


def chromium() -> str:
    """The browser that GLM_CHROMIUM names, else one on PATH."""
    named = os.environ.get("GLM_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.skip("no Chromium: GLM_CHROMIUM names none and PATH has none (--with browser)")
    return found


@pytest.fixture(scope="package")
def browser() -> Iterator:
    playwright = groups.imported("playwright.sync_api")
    program = chromium()
    playwright.expect.set_options(timeout=PATIENCE_MS)
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program)
        yield started
        started.close()


@dataclass
class Watch:
    """What a page said in its console, threw, and asked of whom."""

    said: list[str] = field(default_factory=list)
    thrown: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def follow(self, page) -> None:
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.thrown.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))

    def hosts(self) -> set[str]:
        return {urlsplit(address).netloc for address in self.addresses}


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """Open a server's page; at the end nothing was thrown and no other host was asked."""
    visits = []

    def open_page(server, **options):
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(PATIENCE_MS)
        for script in SCRIPTS:
            context.add_init_script(path=script)
        page, watch = context.new_page(), Watch()
        watch.follow(page)
        visits.append((context, watch, urlsplit(server.url).netloc))
        page.goto(server.url)
        page.wait_for_selector("#state[data-state=ready]")
        return page, watch

    yield open_page
    for context, watch, host in visits:
        context.close()
        assert watch.thrown == []
        assert watch.hosts() == {host}


@pytest.fixture(params=LOOKS)
def look(request, visit, server) -> Iterator:
    """A page in each look; at the end it said nothing in its console."""
    page, watch = visit(server, **LOOKS[request.param])
    yield page
    assert watch.said == []


@pytest.fixture
def page(visit, server) -> Iterator:
    """The page of the session's server; at the end its console is empty."""
    opened, watch = visit(server)
    yield opened
    assert watch.said == []


@pytest.fixture
def endless_page(visit, endless_server) -> Iterator:
    """The page of that server; at the end its console is empty."""
    opened, watch = visit(endless_server)
    yield opened
    assert watch.said == []
