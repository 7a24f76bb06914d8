"""mkdocs calls this module: it adds the generated pages to those of `docs/`."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each generated page as a source file that lies nowhere."""
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]
    from tools.site.pages import PAGES, content_of

    for name in PAGES:
        files.append(File.generated(config, name, content=content_of(name)))
    return files
