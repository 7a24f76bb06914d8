"""Variables without effect: misspelt ones of ours, and those of Ollama's server."""

import difflib
import os
import re
from collections.abc import Collection, Mapping
from typing import cast

import click

from glm_engine.cli.aliases import canonical_key
from glm_engine.cli.option_sources import FILE, PREFIX, known_keys, variable_of
from glm_engine.cli.peer_commands import VARIABLES
from glm_engine.core.console import printable, tell

READ_BESIDES = ("GLM_API_KEY", "GLM_API_KEYS", "GLM_ENGINE_LIBRARY", "GLM_TRACEBACK")
OF_TOOLS = frozenset(
    {
        "GLM_BACKEND_LIBRARY_DIR",
        "GLM_BUILD_CACHE",
        "GLM_BUILD_DIR",
        "GLM_CHROMIUM",
        "GLM_COMPUTE_SANITIZER",
        "GLM_DEBIAN_ARCHIVE",
        "GLM_DEPLOYED_JOB",
        "GLM_GROUPS",
        "GLM_LAUNCHES",
        "GLM_MUTATIONS",
        "GLM_PROBE_LIBRARY",
        "GLM_PROJECT_URL",
        "GLM_PYTHON",
        "GLM_ROOT",
        "GLM_WHEEL_DEVICES",
    }
)
OF_TESTS = "GLM_TEST_"
SERVICE_LINK = re.compile(
    r"GLM_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)=.*|GLM_\w+_PORT=(tcp|udp|sctp):.*"
)


def warn_of_unknown_variables(
    ctx: click.Context, environment: Mapping[str, str] = os.environ
) -> None:
    """Say a line on standard error for each GLM_ variable that no command reads.

    `ctx` is that of the group, whose command is asked before all others are imported.
    """
    unknown = [name for name, value in environment.items() if is_ours(name, value)]
    known = set(READ_BESIDES)
    group = cast("click.Group", ctx.command)
    for command in (group.get_command(ctx, ctx.invoked_subcommand or ""), group):
        if command is None or not unknown:
            return
        known |= {variable_of(key) for key in (FILE, *known_keys(command, ctx))}
        unknown = [name for name in unknown if name not in known]
    for name in unknown:
        tell(printable(f"variable {name} is unknown{nearest(name, known)}"))


def warn_of_foreign_variables(
    ctx: click.Context, environment: Mapping[str, str] = os.environ
) -> None:
    """Say a line on standard error for each variable of Ollama's server that is set."""
    if ctx.invoked_subcommand != "serve":
        return
    for name, answer in VARIABLES.items():
        if name in environment:
            tell(f"variable {name} has no effect: {answer}")


def is_ours(name: str, value: str) -> bool:
    """Say whether a variable is neither the tools' nor one of a Service of Kubernetes."""
    is_of_tools = name in OF_TOOLS or name.startswith(OF_TESTS)
    is_linked = SERVICE_LINK.fullmatch(f"{name}={value}")
    return name.startswith(PREFIX) and not is_of_tools and not is_linked


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of the sentence: the known variable that is meant, if one is."""
    key = canonical_key(name.removeprefix(PREFIX).replace("_", "-").lower())
    if variable_of(key) in known:
        return f"; did you mean {variable_of(key)}?"
    ends = [one.removeprefix(PREFIX) for one in sorted(known)]
    found = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1)
    return f"; did you mean {PREFIX}{found[0]}?" if found else ""
