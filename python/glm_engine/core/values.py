"""Values that users state: never empty, wherever they are stated.

An empty one is a shell variable that was not set; taken for no value at all, it would open doors.
"""

import os

from glm_engine.core.errors import BadInputError


def refuse_empty(name, value):
    """Raise BadInputError where the value of an option or a variable is an empty text."""
    if value == "":
        raise BadInputError(f"{name}: expected a value, got an empty string")


def variable(name, environment=os.environ):
    """Return the value of an environment variable, None where it is not set."""
    value = environment.get(name)
    refuse_empty(name, value)
    return value
