"""What the tests read from the dashboard's JSON: its queries, and the metrics in them."""

import json
import re

from tools.monitoring.dashboard import PATH

METRIC = re.compile(r"\b(?:glm|process)_[a-z0-9_]+")
MACROS = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}


def dashboard() -> dict:
    return json.loads(PATH.read_text(encoding="utf-8"))


def expressions() -> list[str]:
    """Every query of every panel."""
    found = [one["expr"] for panel in dashboard()["panels"] for one in panel.get("targets", [])]
    assert found
    return found


def metric_names() -> set[str]:
    """The samples that queries and variables name."""
    variables = [one["definition"] for one in dashboard()["templating"]["list"][1:]]
    return {name for text in [*expressions(), *variables] for name in METRIC.findall(text)}


def expanded(expression: str) -> str:
    """A query as Prometheus gets it, Grafana's macros replaced."""
    for macro, value in MACROS.items():
        expression = expression.replace(macro, value)
    return expression
