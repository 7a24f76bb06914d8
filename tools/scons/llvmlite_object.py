"""LLVM IR to object code with llvmlite, position independent, for a named CPU."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from environment import Environment, Node, Nodes, Source, depend_on_script, depend_on_version
from SCons.Action import Action
from SCons.Builder import Builder


def llvmlite_version() -> str | None:
    """The installed llvmlite's version, or None."""
    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return None


def object_code(text: str, triple: str, cpu: str, level: int) -> bytes:
    """Object file bytes of IR text."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, opt=level, reloc="pic", codemodel="default"
    )
    code: bytes = machine.emit_object(module)
    return code


def write_object(target: Nodes, source: Nodes, env: Environment) -> int:
    """Builds one object from one IR file."""
    text = Path(str(source[0])).read_text()
    code = object_code(text, env["IR_TRIPLE"], env["IR_CPU"], env["IR_LEVEL"])
    Path(str(target[0])).write_bytes(code)
    return 0


def ir_object(
    env: Environment, target: str, source: Source, triple: str, cpu: str, level: int
) -> list[Node]:
    """The object of one IR file at an optimisation level of 0 to 3."""
    node: list[Node] = env.LlvmliteObject(
        target, source, IR_TRIPLE=triple, IR_CPU=cpu, IR_LEVEL=level
    )
    depend_on_script(env, node, "llvmlite_object.py")
    depend_on_version(env, node, "llvmlite", llvmlite_version())
    return node


def exists(env: Environment) -> bool:
    """True where llvmlite is installed beside SCons."""
    return llvmlite_version() is not None


def generate(env: Environment) -> None:
    """Adds IrObject."""
    env["BUILDERS"]["LlvmliteObject"] = Builder(
        action=Action(
            write_object,
            "llvmlite $SOURCE",
            varlist=["IR_TRIPLE", "IR_CPU", "IR_LEVEL"],
        )
    )
    env.AddMethod(ir_object, "IrObject")
