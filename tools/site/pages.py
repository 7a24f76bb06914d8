"""Which pages are generated, and by which module."""

from importlib import import_module

PAGES = {
    "reference/cli.md": "tools.site.command_line",
    "reference/api.md": "tools.site.http_interface",
}


def content_of(name: str) -> str:
    """The Markdown of a generated page."""
    text: str = import_module(PAGES[name]).page()
    return text
