"""Every link of every document leads somewhere, also where no site is built."""

import pytest

from tests.docs.documents import ROOT, anchors, documents, links


def problem(path, link):
    """What is wrong with a link of a document; an empty text where nothing is."""
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists():
        return f"{link}: there is no {name}"
    if anchor and anchor not in anchors(target):
        return f"{link}: no heading of {target.name} is called so"
    return ""


def inner_links(path):
    return [link for link in links(path) if "://" not in link and not link.startswith("mailto:")]


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert [found for link in inner_links(path) if (found := problem(path, link))] == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Two words\n[a](page.md#two-words) [b](no.md) [c](#three)\n")
    assert inner_links(page) == ["page.md#two-words", "no.md", "#three"]
    assert problem(page, "page.md#two-words") == ""
    assert problem(page, "no.md") == "no.md: there is no no.md"
    assert problem(page, "#three") == "#three: no heading of page.md is called so"


def test_links_are_found_at_all():
    assert sum(len(inner_links(path)) for path in documents()) > 100
