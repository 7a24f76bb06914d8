"""The version, as pyproject.toml or the installed package states it."""

import tomllib
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "glm-engine"


def version():
    """Return the version of the checkout that this is, or of the installed package."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if table.get("name") == DISTRIBUTION:
            return table["version"]
    return metadata.version(DISTRIBUTION)
