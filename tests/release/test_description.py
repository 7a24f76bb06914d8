"""What an index shows of the wheel: links that work, pictures, addresses."""

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_bytes

import pytest

from tests.server.serving import ROOT
from tools.release.contents import VARIABLE as DEVICES_VARIABLE
from tools.release.description import LINK, VARIABLE, addresses, described

URL = "https://forge.test/owner/glm"
TEXT = "![three](docs/a.png) [one](docs/a.md#b) [two](https://else.test/x) [four](LICENSE)"


def test_links_lead_to_the_repository():
    assert described(TEXT, URL) == (
        f"![three]({URL}/raw/HEAD/docs/a.png) [one]({URL}/blob/HEAD/docs/a.md#b) "
        f"[two](https://else.test/x) [four]({URL}/blob/HEAD/LICENSE)"
    )


def test_without_an_address_texts_stay_and_pictures_go():
    assert described(TEXT, "") == " one [two](https://else.test/x) four"
    assert addresses("") == {}


@pytest.mark.parametrize("url", [URL, f"{URL}/", ""])
def test_the_metadata_that_an_index_reads(url):
    command = [sys.executable, "-m", "hatchling", "metadata"]
    variables = os.environ | {DEVICES_VARIABLE: "cpu", VARIABLE: url}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=True)
    stated = json.loads(done.stdout)
    readme = stated["readme"]
    assert readme["content-type"] == "text/markdown"
    assert readme["text"].startswith("# glm-engine\n")
    assert LINK.findall(readme["text"]) == []
    assert stated.get("urls", {}) == addresses(url.rstrip("/"))
    assert ("comparison.png" in readme["text"]) == bool(url)
    assert "Environment :: GPU :: NVIDIA CUDA" in stated["classifiers"]


def test_the_wheel_holds_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "glm serve" in metadata.get_payload()
