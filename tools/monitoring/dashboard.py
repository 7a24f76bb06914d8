"""Grafana's JSON of the dashboard, made from the tables of `panels.py`."""

import json
from itertools import count
from pathlib import Path
from typing import Any

from tools.monitoring.panels import ROWS, Panel, Row

FOLDER = Path(__file__).resolve().parent
PATH = FOLDER / "grafana" / "glm-engine.json"
Json = dict[str, Any]
SCHEMA_VERSION = 42
GRID_WIDTH, HEADING_HEIGHT, PANEL_HEIGHT = 24, 1, 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> Json:
    """The whole dashboard in Grafana's classic model."""
    return {
        "uid": "glm-engine",
        "title": "glm serve",
        "description": "Requests, tokens, latencies, batch, KV pages and process of glm serve.",
        "tags": ["glm-engine", "inference"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": panels(),
    }


def variables() -> list[Json]:
    """The Prometheus to ask, and the servers that are looked at."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    return [source, label_variable("job"), label_variable("instance", '{job=~"$job"}')]


def label_variable(label: str, match: str = "") -> Json:
    """A choice of one, some or all values of a label."""
    query = f"label_values(glm_requests_live{match}, {label})"
    return {
        "name": label,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"choice of {label}", "qryType": 1},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def panels() -> list[Json]:
    """Headings and panels with their places, in order."""
    numbers, made, top = count(1), list[Json](), 0
    for row in ROWS:
        made.append(heading(row, next(numbers), top))
        top += HEADING_HEIGHT
        width = GRID_WIDTH // len(row.panels)
        for column, panel in enumerate(row.panels):
            place = {"x": column * width, "y": top, "w": width, "h": PANEL_HEIGHT}
            made.append(picture(panel, next(numbers), place))
        top += PANEL_HEIGHT
    return made


def heading(row: Row, number: int, top: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": GRID_WIDTH, "h": HEADING_HEIGHT},
        "panels": [],
    }


def picture(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [
            target(query.expression, query.legend, letter)
            for query, letter in zip(panel.queries, "ABCDEFGH", strict=False)
        ],
        "fieldConfig": {"defaults": field_defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind],
    }


def target(expression: str, legend: str, letter: str) -> Json:
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend,
        "range": True,
    }


def field_defaults(panel: Panel) -> Json:
    """Unit and range of the values, and how lines are drawn."""
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.greatest is not None:
        defaults["max"] = panel.greatest
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel.is_stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
        }
    return defaults


OPTIONS = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
    },
}


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"
