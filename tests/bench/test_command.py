"""Errors of the tools: one line, the status that the error names, and everything else as it is."""

import pytest

from glm_engine.core.errors import BadInputError, ExitCode, GlmError
from tools.bench.command import errors_in_one_line


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GlmError("absent"), ExitCode.FAILED),
        (BadInputError("absent"), ExitCode.BAD_INPUT),
        (OSError("absent"), ExitCode.BAD_INPUT),
    ],
)
def test_an_error_is_one_line_and_its_status(error, status, capsys):
    with pytest.raises(SystemExit) as ended, errors_in_one_line("tools.bench.some", OSError):
        raise error
    assert ended.value.code == status
    assert capsys.readouterr().err == "tools.bench.some: absent\n"


def test_an_error_that_nobody_named_is_not_hidden():
    with pytest.raises(OSError, match="absent"), errors_in_one_line("tools.bench.some"):
        raise OSError("absent")


def test_without_an_error_nothing_is_said(capsys):
    with errors_in_one_line("tools.bench.some"):
        pass
    assert capsys.readouterr().err == ""
