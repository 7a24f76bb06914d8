"""Structs of the C ABI as numpy's structured arrays, which the engine fills in one call."""

import ctypes

from glm_engine.core import abi


def event_records(count, name="engine_event"):
    """Return an array for that many of `engine_event`, or of another, and where it lies."""
    import numpy

    records = numpy.zeros(count, record_dtype(name))
    return records, records.ctypes.data_as(ctypes.POINTER(abi.TYPES[name]))


def record_dtype(name):
    """Return numpy's type of a struct of numbers and texts: C's offsets, texts as bytes."""
    import numpy

    struct = abi.TYPES[name]
    fields = dict(struct._fields_)
    return numpy.dtype(
        {
            "names": list(fields),
            "formats": [field_format(made) for made in fields.values()],
            "offsets": [getattr(struct, field).offset for field in fields],
            "itemsize": ctypes.sizeof(struct),
        }
    )


def field_format(made):
    is_text = getattr(made, "_type_", None) is ctypes.c_char
    return f"S{ctypes.sizeof(made)}" if is_text else made
