"""What build commands see of the caller's environment, and how tools state their version."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

KEPT = ("HOME", "TMPDIR", "CC", "CXX", "CUDA_HOME", "XDG_CACHE_HOME", "GLM_PROJECT_URL")
KEPT_PREFIXES = ("NIX_",)


def command_path(variables, prefix):
    """The search path with the running Python's own scripts in front."""
    scripts = os.path.join(prefix, "bin")
    return os.pathsep.join([scripts, variables.get("PATH", os.defpath)])


def build_variables(variables, path):
    """The few variables that reach a compiler; a fixed locale fixes messages and orders."""
    kept = {
        name: value
        for name, value in variables.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    return kept | {"PATH": path, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "0"}


@cache
def first_output_line(command, path):
    """First line that `command` prints, or None when it is not on `path` or fails."""
    found = shutil.which(command[0], path=path)
    if not found:
        return None
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True, env={"PATH": path})
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return lines[0].strip() if done.returncode == 0 and lines else None


def tool_version(env, *command):
    """Version line of a tool on the build's own search path, or None when the tool is absent."""
    return first_output_line(command, env["ENV"]["PATH"])


def depend_on_version(env, target, label, version):
    """Makes the stated version of a tool an input of `target`."""
    env.Depends(target, env.Value(f"{label}: {version or 'absent'}"))


def depend_on_script(env, target, *names):
    """Makes files of tools/scons, whose functions write `target`, inputs of it."""
    env.Depends(target, [f"#tools/scons/{name}" for name in names])


def root_folder(env):
    """The checkout's root as a Path."""
    return Path(env.Dir("#").abspath)
