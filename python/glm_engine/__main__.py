import sys

from glm_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
