"""The files of the page: what is served, with which headers, to whom."""

import re
from pathlib import Path

import pytest

from tests.server.serving import ROOT

FOLDER = ROOT / "python" / "glm_engine" / "server" / "page"
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
FILES = sorted(path for path in FOLDER.rglob("*") if path.suffix in CONTENT_TYPES)
OWN = [FOLDER / "index.html", *FOLDER.glob("*.js")]
POLICY = {
    "default-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
}
REFERENCE = re.compile(r'(?:src|href)="/page/([^"]+)"|"\./([^"]+)"')
FONT = re.compile(r"src: url\('([^']+)'\)")


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def test_document(server):
    answer = server.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    directives = answer.headers["content-security-policy"].split("; ")
    assert dict(one.split(" ", 1) for one in directives) == POLICY
    assert answer.content == (FOLDER / "index.html").read_bytes()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file(server, path: Path):
    answer = server.http.get(f"/page/{name_of(path)}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[path.suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == path.read_bytes()


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/absent.js", "/page/../settings.py", "/page/vendor/libraries.json"],
)
def test_nothing_else_is_served(server, path):
    assert server.http.get(path).status_code == 404


def test_every_reference_leads_to_a_file():
    references = [REFERENCE.findall(path.read_text()) for path in OWN]
    fonts = FONT.findall((FOLDER / "vendor" / "Temml-Local.css").read_text())
    names = {address or module for found in references for address, module in found}
    assert names | {f"vendor/{font}" for font in fonts} == set(map(name_of, FILES))


def test_no_script_stands_in_the_document():
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
    assert re.findall(r"\son[a-z]+=", text) == []
