"""C and C++ with the system's compiler: objects of declared inputs, libraries of chosen exports."""

import os
import shlex
import shutil
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from environment import (
    Environment,
    Node,
    Nodes,
    Source,
    add_methods,
    depend_on_version,
    object_path,
    tool_version,
)
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner.C import CScanner
from SCons.Script import ARGUMENTS

CXX_SUFFIXES = (".cpp", ".cc")
SUFFIXES = (".c", *CXX_SUFFIXES)
C_STANDARD = "-std=gnu11"
CXX_STANDARD = "-std=c++20"
CODE_FLAGS = [
    "-O3",
    "-march=x86-64-v3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    "-pthread",
]
WARNINGS = ["-Wall", "-Wextra"]
MODULE_FLAGS = ["-shared"]
LIBRARY_FLAGS = [*MODULE_FLAGS, "-Wl,-soname,${TARGET.file}"]
PROGRAM_FLAGS = ["-pie"]
FATAL_WARNINGS = ["-Werror"]
C_LIBRARY = (
    "printf '#include <features.h>\\nglibc __GLIBC__.__GLIBC_MINOR__\\n' | {compiler} -E -P -"
    " | tail -n 1"
)
LINK_FLAGS = [
    "-pthread",
    "-static-libgcc",
    "-Wl,-z,relro",
    "-Wl,--build-id=sha1",
    "-Wl,--enable-new-dtags",
]
INCLUDES = ["native/include", ".", "build"]
LOCAL_FLAGS = "$( '-ffile-prefix-map=${Dir('#').abspath}=.' $LOCAL_INCLUDES $)"
COMPILE = (
    "$COMPILER $STANDARD $NATIVE_FLAGS $NATIVE_WARNINGS $NATIVE_INCLUDES "
    f"{LOCAL_FLAGS} -c -o $TARGET $SOURCE"
)
LINK = (
    "$LINKER $NATIVE_LINK_FLAGS $KIND_FLAGS -Wl,-rpath,$RUN_PATH "
    "$UNDEFINED $EXPORTS_FLAG -o $TARGET $LINKED $NATIVE_LIBRARIES"
)


def native_sources(env: Environment, *folders: str) -> list[Node]:
    """Every C and C++ source of the folders; one without any stays, as a source not found."""
    found: list[Node] = []
    for folder in folders:
        matches = [node for suffix in SUFFIXES for node in env.Glob(f"{folder}/*{suffix}")]
        found.extend(sorted(matches, key=str) or [env.File(f"{folder}/*{SUFFIXES[0]}")])
    return found


def is_cxx(path: Source) -> bool:
    """Whether a source file is C++ by its name."""
    return str(path).endswith(CXX_SUFFIXES)


def toolchain_version(env: Environment) -> str:
    """Compiler, linker and C library as one text: an input of every object and library."""
    lines = [
        tool_version(env, env["CC"], "--version"),
        tool_version(env, env["CXX"], "--version"),
        tool_version(env, env["CC"], "-Wl,--version"),
        tool_version(env, "sh", "-c", C_LIBRARY.format(compiler=shlex.quote(env["CC"]))),
    ]
    return " | ".join(line or "absent" for line in lines)


def native_objects(
    env: Environment, sources: object, folder: str = "build/obj", **overrides: object
) -> list[Node]:
    """Compiles each source to its own object below `folder`."""
    objects: list[Node] = []
    for source in env.Flatten([sources]):
        language = (
            {"COMPILER": "$CXX", "STANDARD": CXX_STANDARD}
            if is_cxx(source)
            else {"COMPILER": "$CC", "STANDARD": C_STANDARD}
        )
        target = object_path(env, source, folder)
        node = env.NativeObject(target, source, **(language | overrides))
        depend_on_version(env, node, "native toolchain", env["NATIVE_VERSION"])
        objects.extend(node)
    return objects


def write_export_map(target: Nodes, source: Nodes, env: Environment) -> int:
    """Writes a version script that exports the names in the source value and hides all others."""
    names = " ".join(f"{name};" for name in source[0].read())
    Path(str(target[0])).write_text(f"{{ global: {names} local: *; }};\n")
    return 0


def native_library(
    env: Environment,
    target: str,
    objects: Nodes,
    exports: Collection[str] | None = None,
    libraries: Iterable[str] = ("-lm",),
    **overrides: object,
) -> list[Node]:
    """Links objects into a shared library that exports `exports` (all visible names when None)."""
    cxx = any(is_cxx(source) for node in objects for source in node.sources)
    settings = {
        "KIND_FLAGS": LIBRARY_FLAGS,
        "LINKER": "$CXX" if cxx else "$CC",
        "NATIVE_LINK_FLAGS": env["NATIVE_LINK_FLAGS"] + (["-static-libstdc++"] if cxx else []),
        "NATIVE_LIBRARIES": list(libraries),
        "LINKED": [env.File(node).path for node in objects],
        "EXPORTS_FLAG": "",
    }
    inputs = list(objects)
    if exports is not None:
        script = f"{target.removesuffix('.so')}.exports"
        inputs += env.ExportMap(script, env.Value(sorted(exports)))
        settings["EXPORTS_FLAG"] = f"-Wl,--version-script={inputs[-1].path}"
    library: list[Node] = env.NativeLink(target, inputs, **(settings | overrides))
    depend_on_version(env, library, "native toolchain", env["NATIVE_VERSION"])
    return library


def import_libraries(env: Environment, *names: str) -> list[Node]:
    """Empty libraries: what is linked with them asks for the real ones at run time."""
    return [
        env.NativeLibrary(f"#build/import/{name}", [], libraries=(), LINKER="$CC")[0]
        for name in names
    ]


def compiler(env: Environment, variable: str, fallback: str) -> str:
    """The compiler that an environment variable names, by its bare name where the path finds it."""
    words = shlex.split(os.environ.get(variable, ""))
    chosen = words[0] if words else fallback
    name = os.path.basename(chosen)
    return name if shutil.which(name, path=env["ENV"]["PATH"]) in (chosen, None) else chosen


def exists(env: Environment) -> bool:
    """True where a C compiler is on the path."""
    return tool_version(env, compiler(env, "CC", "gcc"), "--version") is not None


def generate(env: Environment) -> None:
    """Adds the methods of this file and what their commands read.

    A module is a library that is opened by its path: it states no name that others could ask for.
    """
    env["CC"] = compiler(env, "CC", "gcc")
    env["CXX"] = compiler(env, "CXX", "g++")
    fatal = ARGUMENTS.get("warnings") == "errors"
    env.Replace(
        NATIVE_VERSION=toolchain_version(env),
        NATIVE_FLAGS=CODE_FLAGS,
        NATIVE_WARNINGS=WARNINGS + (FATAL_WARNINGS if fatal else []),
        NATIVE_LINK_FLAGS=LINK_FLAGS,
        LOCAL_INCLUDES=[],
        UNDEFINED="-Wl,-z,defs",
        NATIVE_INCLUDES=[f"-I{folder}" for folder in INCLUDES],
        CPPPATH=["#" + folder.removeprefix(".") for folder in INCLUDES],
        RUN_PATH="'$$ORIGIN'",
    )
    env["BUILDERS"].update(
        {
            "NativeObject": Builder(
                action=Action(COMPILE, "compile $SOURCE"), source_scanner=CScanner()
            ),
            "NativeLink": Builder(action=Action(LINK, "link $TARGET")),
            "ExportMap": Builder(action=Action(write_export_map, "exports $TARGET")),
        }
    )
    add_methods(
        env,
        NativeSources=native_sources,
        NativeObjects=native_objects,
        NativeLibrary=native_library,
        NativeModule=partial(native_library, KIND_FLAGS=MODULE_FLAGS),
        NativeProgram=partial(native_library, KIND_FLAGS=PROGRAM_FLAGS),
        ImportLibraries=import_libraries,
    )
