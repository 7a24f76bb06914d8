"""Runs the commands of `glm` as processes of their own, as a user would; logs events as JSON."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from glm_engine.core.errors import ExitCode, GlmError

GLM = (sys.executable, "-m", "glm_engine")
PREFIX = "glm: "
HUB_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SECRETS = (*HUB_SECRETS, "GLM_API_KEYS", "GLM_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
USED_SECRETS = {"pull": HUB_SECRETS, "serve": ("GLM_API_KEYS",)}
Report = dict[str, Any]


class StageFailedError(GlmError):
    """A stage failed; the exit code is that of the command that failed."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def environment_of(command: str) -> dict[str, str]:
    """Return the environment without the secrets that a command does not use."""
    used = USED_SECRETS.get(command, ())
    return {
        name: value for name, value in os.environ.items() if name not in SECRETS or name in used
    }


def report_of(*arguments: str) -> Report:
    """Run `glm ARGUMENTS --json` and return its report; raise its error line if it fails."""
    done = subprocess.run(
        [*GLM, *arguments, "--json"],
        stdin=subprocess.DEVNULL,
        env=environment_of(arguments[0]),
        capture_output=True,
        text=True,
    )
    if done.returncode in (ExitCode.OK, ExitCode.FAILED) and done.stdout:
        report: Report = json.loads(done.stdout)
        return report
    raise failure(f"glm {arguments[0]}", done.returncode, done.stderr)


def failure(name: str, code: int, text: str) -> StageFailedError:
    """Return the error for a command's exit code and standard error."""
    lines = text.strip().splitlines() or [f"exit code {code}, no message"]
    known = code if code in set(ExitCode) else ExitCode.ENGINE
    return StageFailedError(f"{name}: {lines[-1].removeprefix(PREFIX)}", ExitCode(known))


def log_event(event: str, **fields: object) -> None:
    """Log an event as a JSON object on a line of standard error, as the server does."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {**fields, "event": event, "level": "info", "timestamp": now}
    print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)
