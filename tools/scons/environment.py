"""What build commands see of the caller's environment, and how tools state their version.

`Environment` and `Node` are the part of SCons's interface that these tools use: SCons states no
types.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

KEPT = ("HOME", "TMPDIR", "CC", "CXX", "CUDA_HOME", "XDG_CACHE_HOME", "GLM_PROJECT_URL")
KEPT_PREFIXES = ("NIX_",)


class Node(Protocol):
    """A file, folder, alias or value."""

    path: str
    abspath: str
    sources: "Sequence[Node]"

    def srcnode(self) -> Self:
        """The node in the source folder."""

    def get_dir(self) -> "Node":
        """The folder of a file."""

    def get_path(self, folder: "Node") -> str:
        """The path of a file, relative to a folder."""

    def get_text_contents(self) -> str:
        """The text of a file."""

    def File(self, name: str) -> "Node":
        """A file below a folder."""

    def read(self) -> Any:
        """What a value holds."""

    def get_state(self) -> int:
        """Where a node is in its course."""

    def changed_content(
        self, target: "Node", previous: object, repository_node: "Node | None"
    ) -> bool:
        """Whether a node's content is another than at the build before."""


Nodes = Sequence[Node]
Source = str | Node
Sources = Source | Sequence["Source | Nodes"]
Run = Callable[[Nodes, Nodes, "Environment"], int]
"""What an action calls: targets, sources and environment to an exit status."""


class Environment(Protocol):
    """A construction environment; `__getattr__` has the methods and builders that tools add."""

    def __getitem__(self, name: str) -> Any:
        """A construction variable."""

    def __setitem__(self, name: str, value: object) -> None:
        """Set a construction variable."""

    def __getattr__(self, name: str) -> Any:
        """A method that a tool has added."""

    def AddMethod(self, function: object, name: str) -> None:
        """Add a function as a method."""

    def Alias(self, name: str, sources: object = (), action: object = None) -> list[Node]:
        """A name for nodes."""

    def Command(self, target: str, sources: Sources, action: object) -> list[Node]:
        """Nodes that an action makes."""

    def Depends(self, target: object, sources: object) -> list[Node]:
        """Make sources inputs of a target."""

    def Dir(self, name: str) -> Node:
        """A folder."""

    def File(self, name: Source) -> Node:
        """A file."""

    def Flatten(self, nested: object) -> list[Source]:
        """The members of nested lists."""

    def Glob(self, pattern: str) -> list[Node]:
        """The files that match a pattern."""

    def GetOption(self, name: str) -> Any:
        """An option of the command line."""

    def Value(self, content: object) -> Node:
        """A node that holds a Python value."""


def command_path(variables: Mapping[str, str], prefix: str) -> str:
    """The search path with the running Python's own scripts in front."""
    scripts = os.path.join(prefix, "bin")
    return os.pathsep.join([scripts, variables.get("PATH", os.defpath)])


def build_variables(variables: Mapping[str, str], path: str) -> dict[str, str]:
    """The few variables that reach a compiler; a fixed locale fixes messages and orders."""
    kept = {
        name: value
        for name, value in variables.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    return kept | {"PATH": path, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "0"}


@cache
def first_output_line(command: Sequence[str], path: str) -> str | None:
    """First line that `command` prints, or None when it is not on `path` or fails."""
    found = shutil.which(command[0], path=path)
    if not found:
        return None
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True, env={"PATH": path})
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return lines[0].strip() if done.returncode == 0 and lines else None


def tool_version(env: Environment, *command: str) -> str | None:
    """Version line of a tool on the build's own search path, or None when the tool is absent."""
    return first_output_line(command, env["ENV"]["PATH"])


def depend_on_version(
    env: Environment, target: Node | Nodes, label: str, version: str | None
) -> None:
    """Makes the stated version of a tool an input of `target`."""
    env.Depends(target, env.Value(f"{label}: {version or 'absent'}"))


def depend_on_script(env: Environment, target: Node | Nodes, *names: str) -> None:
    """Makes files of tools/scons, whose functions write `target`, inputs of it."""
    env.Depends(target, [f"#tools/scons/{name}" for name in names])


def add_methods(env: Environment, **methods: Callable[..., object]) -> None:
    """Adds functions as methods of `env`, by the names that the SConscripts call."""
    for name, method in methods.items():
        env.AddMethod(method, name)


def object_path(env: Environment, source: Source, folder: str) -> str:
    """Where the object of a source goes: the source's own path below `folder`."""
    path = env.File(source).srcnode().get_path(env.Dir("#"))
    return f"#{folder}/{path}.o"


def root_folder(env: Environment) -> Path:
    """The checkout's root as a Path."""
    return Path(env.Dir("#").abspath)
