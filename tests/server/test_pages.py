"""The files of the page: what is served, with which headers, to whom."""

import re
from pathlib import Path

import pytest

from tests.server.serving import ROOT

FOLDER = ROOT / "python" / "glm_engine" / "server" / "page"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in {".js", ".svg"})
CONTENT_TYPES = {".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = {
    "default-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
}
REFERENCE = re.compile(r'(?:src|href)="([^"#]+)"|from "\./([^"]+)"')


def test_document(server):
    answer = server.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    directives = answer.headers["content-security-policy"].split("; ")
    assert dict(one.split(" ", 1) for one in directives) == POLICY
    assert answer.content == (FOLDER / "index.html").read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file(server, path: Path):
    answer = server.http.get(f"/page/{path.name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[path.suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == path.read_bytes()


@pytest.mark.parametrize("path", ["/page/", "/page/absent.js", "/page/../settings.py"])
def test_nothing_else_is_served(server, path):
    assert server.http.get(path).status_code == 404


def test_every_reference_leads_to_a_file():
    texts = {path: path.read_text() for path in [FOLDER / "index.html", *FILES]}
    names = {
        (address or f"/page/{module}")
        for text in texts.values()
        for address, module in REFERENCE.findall(text)
    }
    assert names == {f"/page/{path.name}" for path in FILES}


def test_no_script_stands_in_the_document():
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
    assert re.findall(r"\son[a-z]+=", text) == []
