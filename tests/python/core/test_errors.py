"""Statuses become exit codes and one clear line."""

import pytest

from glm_engine.core.errors import BAD_INPUT_STATUSES, EngineError, ExitCode, Status


@pytest.mark.parametrize("status", [one for one in Status if one != Status.GLM_OK])
def test_exit_code_of_a_status(status):
    error = EngineError("engine_submit", status, "prompt is empty")
    bad_input = status in BAD_INPUT_STATUSES
    assert error.exit_code == (ExitCode.BAD_INPUT if bad_input else ExitCode.ENGINE)
    assert str(error) == "prompt is empty"


def test_status_without_a_message_is_named():
    assert str(EngineError("engine_wait", 7, "")) == "engine_wait failed with GLM_DEVICE_ERROR"
    assert str(EngineError("engine_wait", 99, "")) == "engine_wait failed with unknown status 99"
