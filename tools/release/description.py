"""The wheel's long description and addresses: the README as an index shows it, which has no files.

With `GLM_PROJECT_URL`, e.g. https://github.com/OWNER/NAME, links and pictures lead there, and the
wheel states the addresses of the project; without it, links keep their texts and pictures go.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "GLM_PROJECT_URL"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")
FILES, PICTURES = "blob/HEAD", "raw/HEAD"


def described(text: str, url: str) -> str:
    """A document whose relative links work outside of the repository."""

    def absolute(match: re.Match[str]) -> str:
        mark, shown, target = match.groups()
        if not url:
            return "" if mark else shown
        return f"{mark}[{shown}]({url}/{PICTURES if mark else FILES}/{target})"

    return LINK.sub(absolute, text)


def addresses(url: str) -> dict[str, str]:
    if not url:
        return {}
    pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    return {"Source": url} | {name: f"{url}/{FILES}/{page}" for name, page in pages.items()}


class WheelDescription(MetadataHookInterface):
    """hatchling calls this for the fields that pyproject.toml names as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        url = os.environ.get(VARIABLE, "").rstrip("/")
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, url)}
        metadata["urls"] = addresses(url)
