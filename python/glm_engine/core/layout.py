"""Where the files lie: one layout, at the top of a checkout or inside the package of a wheel."""

import os
from pathlib import Path

StrPath = str | os.PathLike[str]
PACKAGE = Path(__file__).resolve().parents[1]
IS_WHEEL = (PACKAGE / "build").is_dir()
ROOT = PACKAGE if IS_WHEEL else PACKAGE.parents[1]
LIBRARIES = ROOT / "build"
OWN_MODEL = "capitals"
CAPITALS = ROOT / "checkpoints" / OWN_MODEL
HEADERS = ROOT / "native" / "include" / "glm"
CONFIGS = PACKAGE / "configs"
PAGE = PACKAGE / "server" / "page"
