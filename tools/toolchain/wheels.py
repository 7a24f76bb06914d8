"""pip's report of what a lock installs, as the list of wheels that Nix fetches."""

import json
import sys
from collections.abc import Mapping
from typing import Any


def wheel(entry: Mapping[str, Any]) -> dict[str, str]:
    """Name, version and tags of one wheel as its file states them, and its SHA-256."""
    file = entry["download_info"]["url"].rpartition("/")[2]
    name, version, python, abi, platform = file.removesuffix(".whl").split("-")
    digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
    return {
        "pname": name,
        "version": version,
        "python": python,
        "abi": abi,
        "platform": platform,
        "sha256": digest,
    }


def main() -> None:
    """Reads a report from standard input and writes one wheel a line."""
    wheels = sorted(map(wheel, json.load(sys.stdin)["install"]), key=lambda one: one["pname"])
    print("[\n" + ",\n".join(f"  {json.dumps(one)}" for one in wheels) + "\n]")


if __name__ == "__main__":
    main()
