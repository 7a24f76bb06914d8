"""`python -m tools.release cpu cuda`: a release with these devices, of what lies in build/."""

import sys
from collections.abc import Sequence

from tools.release.archive import make_archive
from tools.release.contents import release_version
from tools.release.wheel import make_wheel


def main(devices: Sequence[str]) -> None:
    """Make wheel and source archive; print where they are."""
    wheel = make_wheel(devices)
    print(wheel)
    print(make_archive(release_version(devices), devices, wheel))


if __name__ == "__main__":
    main(sys.argv[1:])
