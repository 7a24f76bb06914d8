"""Clang's sanitizers over the engine's debug IR, and the fuzzing programs linked with it."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from environment import (
    Environment,
    Node,
    Nodes,
    Source,
    add_methods,
    depend_on_script,
    depend_on_version,
    tool_version,
)
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner.C import CScanner
from targets import run_command

NAMES = ("clang-19", "clang")
DEFINITION = re.compile(
    r"^(define [^\n]*?)((?: #\d+)?(?: personality [^\n]*?)?(?: !dbg !\d+)? \{)$", re.M
)
RUNS = 200_000
LIMITS = [
    "-seed=1",
    "-max_len=65536",
    "-timeout=20",
    "-rss_limit_mb=4096",
    "-verbosity=0",
    "-print_funcs=0",
    "-print_final_stats=1",
]
SANITIZE = "-g -O1 -fno-omit-frame-pointer -fsanitize=address"
COMPILE_IR = f"$CLANG {SANITIZE},fuzzer-no-link -fPIC -Wno-override-module -c -o $TARGET $SOURCE"
LINK_IR = (
    "$CLANG -shared -fsanitize=address -shared-libasan -Wl,-soname,${TARGET.file} "
    "-Wl,-rpath,$RUN_PATH -o $TARGET $SOURCE -lm -ldl"
)
RUN_PATH = "'$$ORIGIN:$$ORIGIN/..'"
LINK_PROGRAM = (
    f"$CLANG {SANITIZE},fuzzer $NATIVE_INCLUDES $( '-ffile-prefix-map=${{Dir('#').abspath}}=.' $) "
    "-o $TARGET $SOURCES -lm -ldl -lpthread"
)


def find_clang(env: Environment) -> str | None:
    """The clang to use: $CLANG, else the first of the known names on the path, else None."""
    chosen = os.environ.get("CLANG")
    path = env["ENV"]["PATH"]
    return chosen or next((name for name in NAMES if shutil.which(name, path=path)), None)


def with_attribute(text: str, attribute: str) -> str:
    """IR text whose every function definition carries `attribute`."""
    return DEFINITION.sub(rf"\1 {attribute}\2", text)


def write_sanitized_ir(target: Nodes, source: Nodes, env: Environment) -> int:
    """Marks every function of the IR for AddressSanitizer."""
    text = Path(str(source[0])).read_text()
    marked = with_attribute(text, "sanitize_address")
    if len(re.findall(r"^define ", text, re.M)) != marked.count(" sanitize_address"):
        print(f"{source[0]}: some functions could not be marked sanitize_address")
        return 1
    Path(str(target[0])).write_text(marked)
    return 0


def sanitized_engine(env: Environment, folder: str, source: Source) -> list[Node]:
    """The engine's IR under AddressSanitizer: [object, shared library] in `folder`."""
    marked = env.SanitizedIr(f"{folder}/engine.ll", source)
    env.Requirement(marked, "clang", None if env["CLANG"] else "clang is not on the PATH")
    depend_on_script(env, marked, "sanitizer.py")
    code = env.SanitizedObject(f"{folder}/engine.o", marked)
    library = env.SanitizedLibrary(f"{folder}/engine.so", code, RUN_PATH=RUN_PATH)
    for node in (code, library):
        depend_on_version(env, node, "clang", env["CLANG_VERSION"])
    return [*code, *library]


def fuzz_program(env: Environment, folder: str, source: Source, code: Nodes) -> Node:
    """One harness linked with the sanitized engine, named as its source."""
    program: list[Node] = env.FuzzLink(f"{folder}/{Path(str(source)).stem}", [source, code])
    depend_on_version(env, program, "clang", env["CLANG_VERSION"])
    return program[0]


def fuzz_command(env: Environment, program: Node, unpack: Sequence[str]) -> Action:
    """Runs a fuzzing program over its corpus, which the command `unpack NAME FOLDER` writes.

    What the program finds new stays in build/fuzz/found.
    """

    def run(target: Nodes, source: Nodes, env: Environment) -> int:
        name, folder = Path(str(program)).name, Path(env.Dir("#build/fuzz").abspath)
        found, corpus = folder / "found" / name, folder / "corpus" / name
        for each in (found, corpus):
            each.mkdir(parents=True, exist_ok=True)
        limits = [*LIMITS, f"-runs={RUNS}", f"-artifact_prefix={found.parent}/{name}-"]
        status = run_command(env, [*unpack, name, corpus])
        return status or run_command(env, [program.abspath, *limits, found, corpus])

    return Action(run, f"{program} -runs={RUNS}")


def exists(env: Environment) -> bool:
    """True where clang is on the path."""
    return find_clang(env) is not None


def generate(env: Environment) -> None:
    """Adds SanitizedEngine, FuzzProgram and FuzzCommand."""
    env["CLANG"] = find_clang(env)
    env["CLANG_VERSION"] = tool_version(env, env["CLANG"], "--version") if env["CLANG"] else None
    env["BUILDERS"].update(
        {
            "SanitizedIr": Builder(action=Action(write_sanitized_ir, "mark $SOURCE")),
            "SanitizedObject": Builder(action=Action(COMPILE_IR, "sanitize $SOURCE")),
            "SanitizedLibrary": Builder(action=Action(LINK_IR, "link $TARGET")),
            "FuzzLink": Builder(
                action=Action(LINK_PROGRAM, "fuzz program $TARGET"), source_scanner=CScanner()
            ),
        }
    )
    add_methods(
        env,
        SanitizedEngine=sanitized_engine,
        FuzzProgram=fuzz_program,
        FuzzCommand=fuzz_command,
    )
