import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.check.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
