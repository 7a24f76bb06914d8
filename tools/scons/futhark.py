"""Futhark programs compiled to C libraries, with every imported file as an input."""

import re

from environment import depend_on_version, tool_version
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner import Scanner

IMPORT = re.compile(
    r'^\s*(?:local\s+)?(?:open\s+)?(?:module\s+\w+\s*=\s*)?import\s+"([^"]+)"', re.M
)
OUTPUTS = (".c", ".h", ".json")
COMPILE = "futhark $FUTHARK_BACKEND --library -o ${TARGET.base} $SOURCE"


def imported_files(node, env, path):
    """The files that one Futhark file imports, relative to its own folder."""
    folder = node.srcnode().get_dir()
    names = IMPORT.findall(node.get_text_contents())
    return [folder.File(f"{name}.fut") for name in names if not name.startswith("/prelude/")]


def futhark_library(env, target, source, backend):
    """Compiles one program to TARGET.c, TARGET.h and TARGET.json with the given back end."""
    outputs = [f"{target}{suffix}" for suffix in OUTPUTS]
    nodes = env.FutharkCompile(outputs, source, FUTHARK_BACKEND=backend)
    depend_on_version(env, nodes, "futhark", env["FUTHARK_VERSION"])
    return nodes


def exists(env):
    """True where Futhark is on the path."""
    return tool_version(env, "futhark", "--version") is not None


def generate(env):
    """Adds FutharkLibrary."""
    env["FUTHARK_VERSION"] = tool_version(env, "futhark", "--version")
    scanner = Scanner(function=imported_files, skeys=[".fut"], recursive=True)
    action = Action(COMPILE, "futhark $FUTHARK_BACKEND $SOURCE")
    if not env["FUTHARK_VERSION"]:
        action = env.Failure("futhark is not on the PATH: run this through tools/develop or Nix")
    env["BUILDERS"]["FutharkCompile"] = Builder(action=action, source_scanner=scanner)
    env.AddMethod(futhark_library, "FutharkLibrary")
