"""The reference pages beside the program: options, fields, errors, metrics, configuration."""

import ast
import json
import re
import tomllib

import click
import pytest

from glm_engine.core.errors import Status
from glm_engine.server.http import api_errors
from glm_engine.version import VERSION
from tests.docs.documents import ROOT, text_of
from tests.server.serving import ServerProcess
from tools.bench.peers import results
from tools.bench.peers.picture import figures_of
from tools.site import command_line, http_interface
from tools.site.pages import PAGES

REFERENCE = ROOT / "docs" / "reference"
SERVER = ROOT / "python" / "glm_engine" / "server"
ROW = re.compile(r"^\| ([^|]*) \| ([^|]*) \|", re.M)
CODE = re.compile(r"`([^`]+)`")
TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.M)
OF_CLIENT = ("process_", "python_")


def page(name):
    return text_of(REFERENCE / name)


def code_cells(name, column):
    """What stands as code in a column of a page's tables."""
    cells = [match[column] for match in ROW.findall(page(name))]
    return {found for cell in cells for found in CODE.findall(cell)}


def test_every_command_and_option_is_in_the_reference():
    text = page("cli.md")
    found = list(command_line.contexts(command_line.root()))
    assert len(found) > 10
    for context in found:
        assert f"## {context.command_path}\n" in text
        for parameter in context.command.get_params(context):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(option in text for option in parameter.opts), parameter.opts


def request_fields():
    """The fields of each request body that have an effect, by the name of the model."""
    described = http_interface.description()
    schemas = described["components"]["schemas"]
    models = {http_interface.request_model(one) for _, one in http_interface.operations(described)}
    return {
        model: {
            name
            for name, schema in schemas[model]["properties"].items()
            if not http_interface.is_ignored(schema) and not http_interface.is_refused(schema)
        }
        for model in models - {None}
    }


def test_every_field_of_a_request_has_a_meaning_and_no_meaning_lacks_its_field():
    meanings, fields = http_interface.read_meanings(), request_fields()
    assert len(fields) > 5
    missing = {
        f"{model}.{name}"
        for model, names in fields.items()
        for name in names
        if not http_interface.meaning(meanings, model, name)
    }
    assert missing == set()
    known = fields | {"all": set.union(*fields.values())}
    stale = {f"{model}.{name}" for model, names in meanings.items() for name in names}
    assert stale - {f"{model}.{name}" for model, names in known.items() for name in names} == set()


def test_every_path_of_the_server_is_in_the_reference():
    text = page("api.md")
    titles = [title for title, _ in http_interface.operations(http_interface.description())]
    assert "POST /v1/chat/completions" in titles
    assert [title for title in titles if f"## `{title}`\n" not in text] == []


def error_codes():
    """The codes that the server's sources give to errors, as literals or names of constants."""
    found = set()
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ApiError":
                stated = [one.value for one in node.keywords if one.arg == "code"]
                found |= {constant(one) for one in [*stated, *node.args[3:4]]}
    return found - {None}


def constant(node):
    if isinstance(node, ast.Constant):
        return node.value
    return getattr(api_errors, node.id) if isinstance(node, ast.Name) else None


def test_every_code_and_status_of_an_error_is_in_the_table():
    codes, statuses = code_cells("errors.md", 1), ROW.findall(page("errors.md"))
    assert len(error_codes()) > 15
    assert error_codes() - codes == set()
    assert codes - error_codes() - {status.name for status in Status} == set()
    shown = {int(one) for first, _ in statuses for one in re.findall(r"\d{3}", first)}
    assert set(api_errors.STATUSES) | {405} <= shown


def test_every_metric_of_a_server_is_in_the_table(tmp_path):
    server = ServerProcess(tmp_path)
    try:
        text = server.http.get("/metrics").text
    finally:
        server.stop()
    kinds = {name: kind for name, kind in TYPE.findall(text) if not name.startswith(OF_CLIENT)}
    named = [(CODE.findall(name), kind) for name, kind in ROW.findall(page("metrics.md"))]
    rows = {found[0]: kind for found, kind in named if found}
    assert len(kinds) > 30
    assert rows == kinds
    counters = {name for name, kind in rows.items() if kind == "counter"}
    assert {name for name in rows if name.endswith("_total")} == counters


@pytest.mark.parametrize(("kind", "parse"), [("json", json.loads), ("toml", tomllib.loads)])
def test_configurations_of_clients_can_be_read(kind, parse):
    text = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == 1
    assert "http://127.0.0.1:8000/v1" in json.dumps(parse(blocks[0]))


@pytest.mark.parametrize("document", ["README.md", "docs/install.md"])
def test_the_wheel_is_named_as_the_build_names_it(document):
    named = re.findall(r"glm_engine-([\d.]+(?:\+cpu)?)-py3", (ROOT / document).read_text())
    assert named
    assert {version.removesuffix("+cpu") for version in named} == {VERSION}


def test_the_readme_states_the_figures_of_its_picture():
    sides = results.read(ROOT / "docs" / "benchmarks" / "comparison")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/benchmarks/comparison.png" in text
    for side in sides.values():
        decode, first, each = figures_of(side)
        row = f"| {results.named(side)} | {decode:,.0f} tokens/s | {first:.0f} ms | {each:.1f} ms |"
        assert row in text


def test_generated_pages_are_not_in_the_tree():
    assert [name for name in PAGES if (ROOT / "docs" / name).exists()] == []
