"""What is kept of a run of several rates that Ctrl-C ends."""

import pytest

from glm_engine.load.records import Outcome
from glm_engine.load.runs import Schedule, run_schedule
from glm_engine.load.workload import Ask
from tests.python.load.test_figures import record


class OneAsk(Schedule):
    """Rates of one ask each, which no workload draws."""

    def asks_of(self, _vocabulary, _at):
        return [Ask(0.0, [1], 3)]


def schedule_of(*rates):
    return OneAsk(None, rates, 1, 0, None, {}, True)


def between_locks():
    error = RuntimeError("release unlocked lock")
    error.__context__ = KeyboardInterrupt()
    return error


def run_until(number, error):
    """How asks are run when run number `number` ends with an error."""
    seen = []

    def run(asks, _on_end):
        seen.append(asks)
        if len(seen) == number:
            raise error
        return [Outcome(100.0, [record()], 0.1)], None, None

    return run


@pytest.mark.parametrize("error", [KeyboardInterrupt(), between_locks()])
def test_figures_of_the_rates_before_an_interrupt_are_kept(error, monkeypatch):
    monkeypatch.setattr("glm_engine.load.runs.ignore_interrupts", lambda: None)
    points = run_schedule(schedule_of(1.0, 2.0, 4.0), None, run_until(3, error))
    assert [point["rate"] for point in points] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("number", "error"), [(1, KeyboardInterrupt()), (1, between_locks()), (2, ValueError())]
)
def test_an_error_and_an_interrupt_before_any_figures_are_raised(number, error):
    with pytest.raises(type(error)):
        run_schedule(schedule_of(1.0, 2.0), None, run_until(number, error))
