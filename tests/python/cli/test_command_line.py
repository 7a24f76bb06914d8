"""The command line without an engine: parsing, exit codes, what is imported."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.cli import command_line
from glm_engine.cli.options import CAPITALS, ByteSize

ROOT = Path(__file__).resolve().parents[3]
NOT_A_CHECKPOINT = (
    "README.md: expected a checkpoint folder, a config.json or a model name, got another file\n"
)


def run(*arguments, stdin="", **variables):
    return subprocess.run(
        [sys.executable, "-m", "glm_engine", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_help_lists_every_command(capsys):
    assert command_line.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in command_line.COMMANDS)
    assert "130 interrupted" in printed


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_command_has_help_and_every_report_has_json(name, capsys):
    assert command_line.main([name, "--help"]) == 0
    has_report = name not in ("chat", "deploy", "help", "serve")
    assert ("--json" in capsys.readouterr().out) == has_report


def test_version_is_the_projects(capsys):
    assert command_line.main(["--version"]) == 0
    line = f'VERSION = "{capsys.readouterr().out.split()[1]}"'
    assert line in (ROOT / "python/glm_engine/version.py").read_text().splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "README.md"], "README.md is a file, not a checkpoint folder"),
        (["chat", "README.md"], "README.md is a file, not a checkpoint folder"),
        (["nope"], "No such command 'nope'. `glm --help` lists the commands."),
        (["inspect", "README.md"], NOT_A_CHECKPOINT),
        (["plan", "README.md"], NOT_A_CHECKPOINT),
        (["smoke", "--device", "tpu"], "'tpu' is not one of"),
        (
            ["plan", "--memory-limit", "3q"],
            "expected a size, e.g. 80GB or 80GiB, or a fraction of free memory, e.g. 0.9, got '3q'",
        ),
        (["inspect", "--match", "("], "--match"),
        (["generate", "x", "--logit-bias", "5"], "expected ID=BIAS, e.g. 42=-1.5, got '5'"),
        (["generate", "x", "--system", "s"], "--system needs --chat"),
        (
            ["generate", "x", "--seed", "-1"],
            "'--seed': expected 0 to 18446744073709551615, got -1",
        ),
        (["generate", "x", "--top-k", "many"], "expected a whole number, got 'many'"),
        (["generate", "x", "--model", "absent"], "absent: no such folder"),
        (["generate", "x", "--model", "."], "neither config.json nor tokenizer.json"),
        (["evaluate", "--facts", "absent.json"], "absent.json: cannot be read"),
        (["evaluate", "--limit", "0"], "--limit"),
        (["evaluate", "--threshold", "2"], "2.0 is not in the range 0<=x<=1"),
        (["evaluate", "--model", "absent"], "absent: no such folder; expected"),
        (["bench", "--model", "absent"], "absent: no such folder; expected"),
        (["serve", "--model", "absent"], "absent: no such folder; expected"),
        (["serve", "--drain-seconds", "nan"], "expected a finite number, got 'nan'"),
        (["serve", "--write-timeout", "inf"], "inf is not in the range 0<x<=86400"),
        (["smoke", "--world-size", "-1"], "'--world-size': expected 0 to 2147483647, got -1"),
        (["smoke", "--max-batch", "-1"], "--max-batch"),
        (["smoke", "--page-size", "-1"], "--page-size"),
        (["smoke", "--page-size", "0"], "'--page-size': expected 1 to 2147483647, got 0"),
        (["smoke", "--max-seq", "-1"], "--max-seq"),
        (["generate", "x", "--max-seq", "999999999"], "--max-seq is 999999999; expected 0 to"),
        (["smoke", "--num-pages", "-1"], "'--num-pages': expected 0 to 2147483647, got -1"),
        (["smoke", "--threads", "-1"], "--threads"),
        (
            ["smoke", "--timed-tokens", "1"],
            "'--timed-tokens': expected 2 to 2147483647, got 1",
        ),
    ],
)
def test_bad_input_is_named_and_gives_2(arguments, message, capsys):
    assert command_line.main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "invalid JSON"),
        ("[]", "expected a JSON list with at least one fact"),
        ('[{"country": "France", "capital": 1}]', "fact 0: expected 'capital' to be a string"),
    ],
)
def test_facts_that_are_no_facts(tmp_path, content, message, capsys):
    path = tmp_path / "facts.json"
    path.write_text(content)
    assert command_line.main(["evaluate", "--facts", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["smoke", "generate", "inspect", "plan", "evaluate"])
def test_absent_library_gives_3_in_one_line(name):
    arguments = [name, *(["hello"] if name == "generate" else [])]
    result = run(*arguments, GLM_ENGINE_LIBRARY="absent.so")
    assert result.returncode == 3
    assert result.stderr == "glm: GLM_ENGINE_LIBRARY names 'absent.so', which is not a file\n"


def test_doctor_says_what_is_missing():
    result = run("doctor", "--json", GLM_ENGINE_LIBRARY="absent.so")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert "engine.so" in report["missing"]
    keys = {"name", "found", "detail", "how", "needed", "for_development", "state"}
    assert set(report["findings"][0]) == keys


def shell(line, unbuffered=""):
    """Run `glm` in a shell; return its exit code and what it said on standard error."""
    glm = f"'{sys.executable}' -m glm_engine"
    result = subprocess.run(
        ["bash", "-c", line.replace("GLM", glm)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "inspect",
        "inspect --json",
        "plan --device cpu",
        "generate x --device cpu --max-tokens 3",
    ],
)
def test_output_that_nobody_takes_is_one_line(arguments):
    full = "glm: cannot write to standard output: No space left on device\n"
    assert shell(f"GLM {arguments} > /dev/full") == (1, full)
    assert shell(f"(sleep 1; GLM {arguments}) | true") == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_empty_ones(closed):
    assert shell(f"(GLM plan --device cpu {closed}) > /dev/null") == (0, "")


def test_errors_that_nobody_can_read_keep_their_exit_code():
    for line in ("nope", "generate x --model absent"):
        for unbuffered in ("", "1"):
            assert shell(f"GLM {line} 2> /dev/full", unbuffered) == (2, "")


def test_prompt_that_is_not_utf8(capsys, monkeypatch):
    class Input:
        buffer = io.BytesIO(b"\xff")

        @staticmethod
        def isatty():
            return False

    monkeypatch.setattr(sys, "stdin", Input)
    assert command_line.main(["generate"]) == 2
    assert "standard input is not valid UTF-8" in capsys.readouterr().err


def test_unexpected_errors_have_no_traceback(capsys, monkeypatch):
    def fail(_model_dir):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("glm_engine.core.engine.inspect_checkpoint", fail)
    monkeypatch.delenv(command_line.TRACEBACK_VARIABLE, raising=False)
    assert command_line.main(["inspect"]) == 3
    expected = (
        "glm: unexpected RuntimeError: first second (set GLM_TRACEBACK=1 for the traceback)\n"
    )
    assert capsys.readouterr().err == expected
    monkeypatch.setenv(command_line.TRACEBACK_VARIABLE, "1")
    with pytest.raises(RuntimeError):
        command_line.main(["inspect"])


def test_interrupt_while_loading_gives_130_at_once():
    code = (
        "import sys, time\n"
        "from glm_engine.cli.command_line import main\n"
        "from glm_engine.core import loading\n"
        "def slow(options):\n"
        "    print('loading', flush=True)\n"
        "    time.sleep(600)\n"
        "loading.Engine = slow\n"
        "sys.exit(main(['smoke']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "glm: interrupted"


@pytest.mark.parametrize(("command", "call"), [("inspect", "inspect_checkpoint"), ("plan", "plan")])
def test_interrupt_while_c_reads_a_checkpoint_gives_130_at_once(command, call):
    code = (
        "import ctypes, sys\n"
        "from glm_engine.cli.command_line import main\n"
        "from glm_engine.core import engine\n"
        "lock = ctypes.CDLL(None).pthread_mutex_lock\n"
        "mutex = ctypes.create_string_buffer(64)\n"
        "def slow(_):\n"
        "    print('reading', flush=True)\n"
        "    lock(mutex)\n"
        "    lock(mutex)\n"
        f"engine.{call} = slow\n"
        f"sys.exit(main([{command!r}, {str(CAPITALS)!r}]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.strip() == "glm: interrupted"


def test_interrupt_while_a_thread_is_started_gives_130():
    code = (
        "import sys, threading\n"
        "from glm_engine.cli.command_line import main\n"
        "def interrupted_once_released(condition):\n"
        "    condition._lock.release()\n"
        "    raise KeyboardInterrupt\n"
        "threading.Condition._release_save = interrupted_once_released\n"
        f"sys.exit(main(['plan', {str(CAPITALS)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr.strip()) == (130, "glm: interrupted")


@pytest.mark.parametrize(
    ("text", "size"),
    [("5", 5), ("1kB", 1000), ("1KiB", 1024), ("1.5GB", 1_500_000_000), ("80 gib", 80 * 1024**3)],
)
def test_sizes(text, size):
    assert ByteSize().convert(text, None, None) == size


def test_help_and_tokenizing_import_little():
    code = (
        "import sys\n"
        "from glm_engine.cli.command_line import main\n"
        "main(['smoke', '--help'])\n"
        "assert not {'numpy', 'rich', 'tokenizers', 'jinja2'} & set(sys.modules)\n"
        "from glm_engine.text.tokenizer import GlmTokenizer\n"
        "import glm_engine.core.engine, glm_engine.core.runner, glm_engine.core.loading\n"
        f"GlmTokenizer({str(CAPITALS)!r})\n"
        "heavy = {'numpy', 'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
