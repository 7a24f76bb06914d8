"""Variables that begin with GLM_ and that nothing reads: most are an option's, misspelt."""

import difflib
import os
import re
import sys

from glm_engine.console import printable
from glm_engine.option_sources import FILE, PREFIX, known_keys, variable_of

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
        "GLM_PYTHON",
        "GLM_ROOT",
        "GLM_WHEEL_DEVICES",
    }
)
OF_TESTS = "GLM_TEST_"
SERVICE_LINK = re.compile(
    r"GLM_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)=.*|GLM_\w+_PORT=(tcp|udp|sctp):.*"
)


def warn_of_unknown_variables(ctx, environment=os.environ):
    """Say a line on standard error for each GLM_ variable that no command reads.

    `ctx` is that of the group, whose command is asked before all others are imported.
    """
    unknown = [name for name, value in environment.items() if is_ours(name, value)]
    known = set(READ_BESIDES)
    for command in (ctx.command.get_command(ctx, ctx.invoked_subcommand), ctx.command):
        if command is None or not unknown:
            return
        known |= {variable_of(key) for key in (FILE, *known_keys(command, ctx))}
        unknown = [name for name in unknown if name not in known]
    for name in unknown:
        line = printable(f"variable {name} is unknown{nearest(name, known)}")
        print(f"glm: {line}", file=sys.stderr, flush=True)


def is_ours(name, value):
    """Say whether a variable is neither the tools' nor one of a Service of Kubernetes."""
    is_of_tools = name in OF_TOOLS or name.startswith(OF_TESTS)
    is_linked = SERVICE_LINK.fullmatch(f"{name}={value}")
    return name.startswith(PREFIX) and not is_of_tools and not is_linked


def nearest(name, known):
    """Return the end of the sentence: the known variable that is like this one, if any is."""
    ends = [one.removeprefix(PREFIX) for one in sorted(known)]
    found = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1)
    return f"; the nearest known name is {PREFIX}{found[0]}" if found else ""
