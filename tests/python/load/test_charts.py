"""Where the pictures of a report are written."""

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.load.charts import plot_report, prepare_plot
from tests import groups
from tests.python.load.test_figures import record
from tests.python.load.test_report import GAUGES, report_of


@groups.needs("matplotlib")
@pytest.mark.parametrize(
    ("name", "stem"), [("run-0.95", "run-0.95"), ("run", "run"), ("a.svg", "a"), ("b.png", "b")]
)
def test_only_the_kind_of_a_picture_is_no_part_of_its_name(tmp_path, name, stem):
    paths = plot_report(report_of(record()), tmp_path / name)
    assert {path.name for path in paths} == {f"{stem}.png", f"{stem}.svg"}
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.png", f"{stem}.svg"}


@groups.needs("matplotlib")
def test_gauges_are_drawn_over_the_seconds(tmp_path):
    _, picture = plot_report(report_of(record(), gauges=GAUGES), tmp_path / "watched")
    text = picture.read_text("utf-8")
    assert all(words in text for words in ("batch used, %", "KV cache used, %", "seconds"))
    _, without = plot_report(report_of(record(), gauges=None), tmp_path / "unwatched")
    assert "KV cache" not in without.read_text("utf-8")


@pytest.mark.parametrize("text", ["", "/", ".", "..", "reports/"])
def test_names_that_are_none(text):
    with pytest.raises(BadInputError, match="expected a file name"):
        prepare_plot(text)
