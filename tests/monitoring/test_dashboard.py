"""The dashboard's JSON: made from its tables, laid out without overlap, in queries that parse."""

from itertools import combinations

import promql_parser
import pytest
import yaml
from click.testing import CliRunner

from tests.monitoring.queries import dashboard, expanded, expressions, metric_names
from tools.monitoring import __main__ as command
from tools.monitoring.dashboard import FOLDER, GRID_WIDTH, PATH, text

PAIRS = {"(": ")", "{": "}", "[": "]"}


def test_the_file_is_what_the_tables_make():
    assert PATH.read_text(encoding="utf-8") == text(), "run `python -m tools.monitoring`"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["grafana"], 2), (["--output", "x"], 2), ([], 0)]
)
def test_the_command_writes_only_when_it_has_no_arguments(arguments, code, tmp_path, monkeypatch):
    path = tmp_path / "grafana" / "dashboard.json"
    monkeypatch.setattr(command, "PATH", path)
    assert CliRunner().invoke(command.main, arguments).exit_code == code
    assert path.exists() == (arguments == [])


def test_panels_are_numbered_once_and_say_what_they_show():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["targets"]
            letters = [one["refId"] for one in panel["targets"]]
            assert len(set(letters)) == len(letters)


def cells(panel: dict) -> set:
    place = panel["gridPos"]
    columns = range(place["x"], place["x"] + place["w"])
    rows = range(place["y"], place["y"] + place["h"])
    return {(column, row) for column in columns for row in rows}


def test_panels_do_not_overlap_and_fill_the_width():
    panels = dashboard()["panels"]
    for one, other in combinations(panels, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    for panel in panels:
        assert all(0 <= column < GRID_WIDTH for column, _ in cells(panel))
    heights = max(row for panel in panels for _, row in cells(panel)) + 1
    assert sum(len(cells(panel)) for panel in panels) == GRID_WIDTH * heights


def test_variables_are_defined_before_they_are_used():
    names = {one["name"] for one in dashboard()["templating"]["list"]}
    assert names == {"datasource", "job", "instance"}
    for expression in expressions():
        assert "$" not in expanded(expression)


@pytest.mark.parametrize("expression", expressions())
def test_brackets_of_a_query_close_in_order(expression):
    open_ones = []
    for character in expanded(expression):
        if character in PAIRS:
            open_ones.append(PAIRS[character])
        elif character in PAIRS.values():
            assert open_ones
            assert open_ones.pop() == character
    assert not open_ones


@pytest.mark.parametrize("expression", expressions())
def test_a_query_is_promql(expression):
    assert promql_parser.parse(expanded(expression)) is not None


def queries_of(title: str) -> list[str]:
    [panel] = [one for one in dashboard()["panels"] if one["title"] == title]
    return [one["expr"] for one in panel["targets"]]


def test_a_fresh_server_has_nothing_unfinished_and_polls_do_not_count():
    [query] = queries_of("Unfinished requests")
    assert query.count(" or vector(0)") == 2
    assert query.count('endpoint=~"/v1/.*"') == query.count("glm_requests_total") == 2


def test_an_idle_server_has_no_cost_of_a_token():
    for query in queries_of("CPU time per generated token"):
        assert query.endswith(" > 0)")
        assert "clamp_min" not in query


def test_all_servers_are_those_that_were_found():
    variables = dashboard()["templating"]["list"][1:]
    assert all(one["includeAll"] and "allValue" not in one for one in variables)


def test_rates_are_taken_of_counters_alone():
    for expression in expressions():
        for name in metric_names():
            is_rated = f"rate({name}{{" in expression
            is_counter = name.endswith(("_total", "_bucket"))
            assert is_counter or not is_rated, expression
            assert is_rated or not (is_counter and f"{name}{{" in expression), expression


def test_prometheus_scrapes_the_metrics_of_a_server_at_its_default_port():
    content = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = content["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8000"]}]
