"""The four loads: requests on their own clock, sent by `glm load` to any of the servers."""

from collections.abc import Mapping
from pathlib import Path

from tools.bench.peers.servers import MODEL
from tools.bench.processes import run_glm

LIMITS, LONG_LIMITS = "ttft:500ms,tpot:50ms", "ttft:2s,tpot:50ms"
LOADS = {
    "short": {
        "rate": "8,16,32",
        "requests": "160",
        "prompts": "lognormal:200:0.8:700",
        "outputs": "lognormal:120:0.6:256",
        "seed": "8",
        "goodput": LIMITS,
    },
    "medium": {
        "rate": "4,8",
        "requests": "64",
        "prompts": "uniform:1000:1800",
        "outputs": "fixed:100",
        "seed": "9",
        "goodput": LIMITS,
    },
    "long": {
        "rate": "1.5",
        "requests": "30",
        "prompts": "uniform:6000:7500",
        "outputs": "fixed:200",
        "seed": "10",
        "goodput": LONG_LIMITS,
    },
    "flood": {
        "rate": "inf",
        "requests": "512",
        "prompts": "fixed:128",
        "outputs": "fixed:128",
        "seed": "7",
    },
}
MOST_AT_ONCE = "256"


def send(url: str, load: Mapping[str, str], output: Path) -> None:
    """Send one load and keep the report of `glm load`."""
    stated = [word for name, value in load.items() for word in (f"--{name}", value)]
    words = ["--max-concurrency", MOST_AT_ONCE, "--output", str(output)]
    run_glm("load", url, "--served-model", MODEL, *stated, *words)
