"""Ctrl-C between two steps, never inside one: an engine's events must not get lost."""

import threading
from collections.abc import Callable
from typing import TypeVar

from glm_engine.core.interrupts import interrupted_afterwards

Result = TypeVar("Result")


def uninterrupted(do: Callable[[], Result]) -> Result:
    """Do something that Ctrl-C must not tear apart; KeyboardInterrupt comes when it is done."""
    if threading.current_thread() is not threading.main_thread():
        return do()
    results: list[Result] = []
    interrupted_afterwards(lambda: results.append(do()))
    [result] = results
    return result
