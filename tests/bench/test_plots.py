"""Pictures of every section: well-formed, without comments, the same bytes each time."""

from xml.etree import ElementTree

import pytest

from tests import groups
from tools.bench import plots
from tools.bench.__main__ import SECTIONS
from tools.bench.figures import Bound, Figure, Section

pytestmark = groups.needs("matplotlib")

RATES = {
    f"{side} {name}_tokens_per_second": [10.0, 11.0, 12.0]
    for side in ("engine", "transformers")
    for name in ("decode", "prefill")
}
SERIES = {
    "planning": {"microseconds": {"256 of 8,192": [6.0, 7.0, 8.0]}},
    "index": {"engine_plan": [0.2, 0.3], "engine_inspect": [0.4, 0.5]},
    "memory": {"imports": 25e6, "smoke": 65e6, "checkpoint": 8e6, "pool": 8e6, "allowance": 150e6},
    "decoding": {"1": RATES, "32": RATES},
}


def section(name: str) -> Section:
    figure = Figure("a figure", 1.0, "s", Bound.AT_MOST, 2.0)
    return Section(name, f"Title of {name}", "How.", (figure,), SERIES[name])


@pytest.mark.parametrize("name", plots.PLOTS)
def test_a_section_is_drawn(name, tmp_path):
    vector, raster = plots.draw(section(name), tmp_path)
    content = vector.read_bytes()
    ElementTree.fromstring(content)
    assert b"<!--" not in content
    assert f"Title of {name}".encode() in content
    assert raster.read_bytes().startswith(b"\x89PNG")
    other = tmp_path / "other"
    other.mkdir()
    assert plots.draw(section(name), other)[0].read_bytes() == content


def test_every_section_of_the_command_has_a_plot():
    assert set(plots.PLOTS) == set(SECTIONS)
