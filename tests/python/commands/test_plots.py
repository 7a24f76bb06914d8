"""`--plot` of `glm load` and `glm bench`: a picture of the report, in two formats."""

from tests import groups
from tests.python.commands.running import glm, glm_json
from tests.python.commands.test_bench import CAPITALS
from tests.python.commands.test_bench import SMALL as BENCH
from tests.python.commands.test_load import SMALL as LOAD

pytestmark = groups.needs("matplotlib")


def test_rates_of_a_load_are_drawn(server, tmp_path):
    glm_json("load", server.url, *LOAD, "--rate", "50,inf", "--plot", tmp_path / "load")
    assert (tmp_path / "load.png").stat().st_size > 1000
    assert "output tokens/s" in (tmp_path / "load.svg").read_text()


def test_a_report_of_a_benchmark_is_shown_and_drawn(tmp_path):
    target = tmp_path / "bench.json"
    glm_json("bench", "--device", "cpu", "--model", CAPITALS, *BENCH, "--output", target)
    shown = glm("bench", "--show", target, "--plot", tmp_path / "plots" / "decode")
    assert shown.returncode == 0
    assert "ms/step" in shown.stdout
    assert (tmp_path / "plots" / "decode.png").stat().st_size > 1000
    assert "decode tokens/s" in (tmp_path / "plots" / "decode.svg").read_text()
