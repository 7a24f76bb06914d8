"""The picture of the comparison of engines."""

from xml.etree import ElementTree

from click.testing import CliRunner

from tests import groups
from tests.bench.test_peers import COMPARISON
from tools.bench.peers.__main__ import main

pytestmark = groups.needs("matplotlib")


def test_the_picture_shows_each_engine_with_its_figures(tmp_path):
    given = [str(COMPARISON), "--picture", str(tmp_path / "drawn")]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    texts = "".join(ElementTree.fromstring((tmp_path / "drawn.svg").read_bytes()).itertext())
    for shown in ("glm-engine", "vLLM", "SGLang", "2,541", "1,962", "2,169", "59", "234", "93"):
        assert shown in texts
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
