"""The documents as a site: every page is reached, and nothing is loaded from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import groups
from tests.docs.documents import ROOT
from tools.site.pages import PAGES

LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:)?//", re.I)
IMPORTED = re.compile(r"@import|url\(\s*['\"]?https?:", re.I)

pytestmark = groups.needs("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "pages"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_document_is_a_page(site):
    names = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    generated = {Path(name).with_suffix("") for name in PAGES}
    assert len(names) > 5
    assert names | generated <= pages
    assert not names & generated


def test_nothing_is_loaded_from_elsewhere(site):
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(pages) > 5
    for path in pages:
        text = path.read_text()
        assert not LOADED.search(text), path
        assert not IMPORTED.search(text), path
