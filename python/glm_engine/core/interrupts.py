"""What Ctrl-C does where no engine is there that would have to be freed.

It is the first thing that `glm` imports, so it imports nothing that is not there yet: `signal`
would bring `enum`, and with it half of the time in which Ctrl-C showed a traceback.
"""

import os
from _collections_abc import Callable
from _signal import SIGINT, default_int_handler, getsignal, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = b"\nglm: interrupted\n"
ERROR_OUTPUT = 2
KILLED = 128


def let_interrupts_end() -> None:
    """From now on Ctrl-C ends the process, rather than raise inside whatever is being imported."""
    if getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, end_at_once)


def let_interrupts_raise() -> None:
    """From now on Ctrl-C is KeyboardInterrupt again, so that what is open is closed."""
    if getsignal(SIGINT) is end_at_once:
        signal(SIGINT, default_int_handler)


def interrupted_afterwards(do: Callable[[], object]) -> None:
    """Do what might swallow Ctrl-C, as an import does in its callbacks, and raise it at the end."""
    if getsignal(SIGINT) is not default_int_handler:
        do()
        return
    noted: list[bool] = []
    signal(SIGINT, lambda *_: noted.append(True))
    try:
        do()
    finally:
        signal(SIGINT, default_int_handler)
        if noted:
            raise KeyboardInterrupt


def is_interrupt(error: BaseException | None) -> bool:
    """Say whether an error is Ctrl-C, also where that fell between two locks of `threading`.

    A condition whose wait is interrupted there is left without its lock, which is a RuntimeError.
    """
    if type(error) is RuntimeError:
        error = error.__context__
    return isinstance(error, KeyboardInterrupt)


def end_at_once(number: int, _frame: object) -> None:
    try:
        os.write(ERROR_OUTPUT, INTERRUPTED)
    finally:
        os._exit(KILLED + number)
