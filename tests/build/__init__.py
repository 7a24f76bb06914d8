"""The build's scripts are imported as SCons imports them: by their bare names."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "tools" / "scons"
sys.path.insert(0, str(SCRIPTS))
