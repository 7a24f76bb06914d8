"""`python -m tools.release cpu cuda`: the wheel with these devices, of what lies in build/."""

import sys

from tools.release.wheel import make_wheel

if __name__ == "__main__":
    print(make_wheel(sys.argv[1:]))
