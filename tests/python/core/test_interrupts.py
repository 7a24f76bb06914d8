"""Ctrl-C at any moment of a command's life: one line and 130, never a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.core.interrupts import is_interrupt

INTERRUPTED = "\nglm: interrupted\n"
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
SIGNALLED_AT_IMPORT = """
import os, runpy, signal, sys
class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Signalling())
sys.argv = ["glm", *{arguments!r}]
runpy.run_module("glm_engine", run_name="__main__")
"""
SIGNALLED_IN_A_CALLBACK = """
import os, runpy, signal, sys, weakref
class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            sys.meta_path.remove(self)
            seen = weakref.ref(Signalling(), lambda _: os.kill(os.getpid(), signal.SIGINT))
sys.meta_path.insert(0, Signalling())
sys.argv = ["glm", "smoke", "--device", "cpu"]
runpy.run_module("glm_engine", run_name="__main__")
"""
SIGNALLED_AT_THE_END = """
import atexit, os, runpy, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
sys.argv = ["glm", "--version"]
runpy.run_module("glm_engine", run_name="__main__")
"""
MODULES = [
    ("glm_engine.cli.command_line", ["--version"]),
    ("click", ["--version"]),
    ("click.core", ["plan"]),
    ("glm_engine.commands.plan", ["plan"]),
    ("glm_engine.cli.options", ["evaluate"]),
    ("glm_engine.core.engine", ["inspect"]),
    ("tokenizers", ["generate", "x"]),
    ("numpy", ["smoke", "--device", "cpu"]),
    ("glm_engine.server.server_settings", ["serve"]),
]


def run(code, **options):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        **options,
    )


@pytest.mark.parametrize(("module", "arguments"), MODULES, ids=[name for name, _ in MODULES])
def test_interrupt_while_a_module_is_imported(module, arguments):
    result = run(SIGNALLED_AT_IMPORT.format(module=module, arguments=arguments))
    assert (result.returncode, result.stderr) == (130, INTERRUPTED)


def test_interrupt_in_a_callback_of_an_import_is_not_lost():
    result = run(SIGNALLED_IN_A_CALLBACK)
    assert (result.returncode, result.stderr) == (130, INTERRUPTED)


def test_interrupt_after_the_report():
    result = run(SIGNALLED_AT_THE_END)
    assert (result.returncode, result.stderr) == (130, INTERRUPTED)


def test_who_ignores_interrupts_goes_on():
    code = SIGNALLED_AT_IMPORT.format(module="click", arguments=["--version"])
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{code}"
    result = run(ignoring)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_process_that_is_signalled_where_it_reads_ends_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "glm_engine", "generate"],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert process.stderr.read() == INTERRUPTED
    process.stdin.close()
    process.stderr.close()


@pytest.mark.parametrize(
    ("error", "context", "expected"),
    [
        (KeyboardInterrupt(), None, True),
        (RuntimeError("release unlocked lock"), KeyboardInterrupt(), True),
        (RuntimeError(), None, False),
        (RuntimeError(), ValueError(), False),
        (KeyError(), KeyboardInterrupt(), False),
        (NotImplementedError(), KeyboardInterrupt(), False),
    ],
)
def test_what_counts_as_an_interrupt(error, context, expected):
    error.__context__ = context
    assert is_interrupt(error) == expected
