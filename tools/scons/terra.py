"""The engine's IR: `scons lower` writes it, the ordinary build checks it by its manifest."""

import shutil
import tempfile

from environment import depend_on_script, root_folder, tool_version
from lowering import (
    FOLDER,
    MANIFEST,
    LoweringError,
    differences,
    lower_all,
    lowered_files,
    lowered_sources,
)
from SCons.Action import Action
from SCons.Builder import Builder


def terra_command(env):
    """Where the `terra` command is, or None."""
    return shutil.which("terra", path=env["ENV"]["PATH"])


def lower(target, source, env):
    """Runs Terra into a folder of its own and, when all went well, replaces terra/lowered."""
    terra = terra_command(env)
    if not terra:
        print("scons lower: `terra` is not on the PATH; terra/lowered is left as it is")
        return 1
    root = root_folder(env)
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / "build") as folder:
        try:
            lower_all(terra, root, folder)
        except LoweringError as error:
            print(error)
            return 1
        shutil.copytree(folder, root / FOLDER, dirs_exist_ok=True)
    return 0


def verify(target, source, env):
    """Copies one IR file into build/ when the manifest and all it names agree with the checkout."""
    lines = differences(root_folder(env))
    if lines:
        print("terra/lowered was not made from the present sources:")
        print("\n".join(f"  {line}" for line in lines))
        print("Run `scons lower` where `terra` is on the PATH, then build again.")
        return 1
    shutil.copyfile(str(source[0]), str(target[0]))
    return 0


def lowered_ir(env, family, build):
    """The verified IR of one CPU family and build."""
    relative = f"{FOLDER}/{family}/{build}.ll"
    read = [str(MANIFEST), *lowered_files(), *lowered_sources(root_folder(env))]
    node = env.VerifiedIr(
        f"#build/lowered/{family}/{build}.ll",
        [f"#{name}" for name in dict.fromkeys([relative, *read])],
    )
    depend_on_script(env, node, "terra.py", "lowering.py")
    env.NoCache(node)
    return node


def lower_target(env):
    """Declares `lower`; when it (or its picture) was asked for, the same run builds from it."""
    env["GLM_TARGETS"]["lower"] = "runs Terra and writes terra/lowered (needs the `terra` command)"
    asked = list(map(str, env["GLM_COMMAND_LINE"]))
    if "lower" not in asked and asked != ["graph"]:
        return
    outputs = [f"#{name}" for name in lowered_files()] + [f"#{MANIFEST}"]
    sources = [f"#{name}" for name in lowered_sources(root_folder(env))]
    nodes = env.LowerEngine(outputs, sources)
    for settle in (env.AlwaysBuild, env.Precious, env.NoCache, env.NoClean):
        settle(nodes)
    env.Alias("lower", nodes)


def exists(env):
    """True where Terra is on the path."""
    return tool_version(env, "terra", "--version") is not None


def generate(env):
    """Adds LoweredIr and LowerTarget."""
    from SCons.Script import COMMAND_LINE_TARGETS

    env["GLM_COMMAND_LINE"] = COMMAND_LINE_TARGETS
    env["BUILDERS"]["LowerEngine"] = Builder(action=Action(lower, "lower terra/engine.t"))
    env["BUILDERS"]["VerifiedIr"] = Builder(action=Action(verify, "verify ${SOURCES[0]}"))
    env.AddMethod(lowered_ir, "LoweredIr")
    env.AddMethod(lower_target, "LowerTarget")
