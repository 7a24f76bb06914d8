"""Handles that are null, freed, of another kind or never given are errors of every function."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core import abi
from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.errors import Status
from glm_engine.core.libraries import load_engine_library
from tests.engine import tamper

MESSAGE = "glm_message*"
TAKES_ENGINE = {
    name: arguments
    for name, (_, *arguments) in abi.FUNCTIONS.items()
    if arguments[0] == "glm_engine*" and name != "free_engine"
}
NEVER_GIVEN = [1, 0x10, 0x7FFF00000010, 2**64 - 16]
TARGETS = ("**", "double*")


@pytest.fixture(scope="module")
def library():
    return load_engine_library()


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("model"))


def open_engine(directory: Path) -> Engine:
    return Engine(EngineOptions(directory, device="cpu", max_seq=64, max_batch=2, num_threads=1))


@pytest.fixture
def freed(library, directory):
    """The handle of an engine that is freed."""
    engine = open_engine(directory)
    handle = engine.pointer
    assert library.free_engine(handle) == Status.GLM_OK
    engine.pointer = None
    return handle


@pytest.fixture
def engine(directory):
    with open_engine(directory) as opened:
        yield opened


def refusal(library, name: str, handle) -> tuple[int, str]:
    """Status and message of a function of the engine for this handle, all else empty."""
    message, kept = abi.Message(), []
    values = [handle]
    for c_type in TAKES_ENGINE[name][1:]:
        made = abi.resolve(abi.TYPES, c_type)
        if c_type == MESSAGE:
            values.append(ctypes.byref(message))
        elif c_type.endswith(TARGETS) and "const" not in c_type:
            kept.append(made._type_())
            values.append(ctypes.byref(kept[-1]))
        else:
            values.append(None if c_type.endswith("*") else 0)
    return getattr(library, name)(*values), message.text.decode()


def expect_refusal(library, name: str, handle) -> None:
    status, message = refusal(library, name, handle)
    if name in {"engine_event_fd", "engine_kv_event_fd"}:
        assert status == -1
        return
    assert status == Status.GLM_INVALID_ARGUMENT
    if MESSAGE in TAKES_ENGINE[name]:
        assert message == "engine is null or already freed: expected a handle from init_engine"


@pytest.mark.parametrize("name", [name for name in TAKES_ENGINE if name != "free_request_state"])
def test_a_freed_engine_is_refused(name, library, freed):
    expect_refusal(library, name, freed)


@pytest.mark.parametrize("name", [name for name in TAKES_ENGINE if name != "free_request_state"])
@pytest.mark.parametrize("bits", [0, *NEVER_GIVEN])
def test_what_was_never_an_engine_is_refused(name, bits, library):
    expect_refusal(library, name, ctypes.cast(bits, abi.EnginePointer))


@pytest.mark.parametrize("name", [name for name in TAKES_ENGINE if MESSAGE in TAKES_ENGINE[name]])
def test_null_for_all_but_the_engine_leaves_it_usable(name, library, engine):
    arguments = TAKES_ENGINE[name][1:]
    values = [None if c_type.endswith("*") else 0 for c_type in arguments]
    status = getattr(library, name)(engine.pointer, *values)
    assert status in {Status.GLM_OK, Status.GLM_INVALID_ARGUMENT, Status.GLM_NOT_FOUND}
    assert engine.info()["is_usable"] == 1


@pytest.mark.parametrize("bits", NEVER_GIVEN)
def test_what_was_never_given_is_not_freed(bits, library, engine):
    pointers = [ctypes.cast(bits, kind) for kind in (abi.EnginePointer, abi.StatePointer)]
    assert library.free_engine(pointers[0]) == Status.GLM_INVALID_ARGUMENT
    assert library.free_request_state(engine.pointer, pointers[1]) == Status.GLM_INVALID_ARGUMENT
    text = ctypes.cast(bits, abi.TextPointer)
    assert library.engine_text_free(text) == Status.GLM_INVALID_ARGUMENT
    assert library.engine_text_data(text) is None
    assert library.engine_text_size(text) == -1


def test_null_is_freed_without_a_word(library, engine):
    assert library.free_engine(None) == Status.GLM_OK
    assert library.free_request_state(engine.pointer, None) == Status.GLM_OK
    assert library.engine_text_free(None) == Status.GLM_OK
    library.engine_default_request(None)
    library.engine_default_options(None)


def test_an_engine_is_freed_once(library, freed, directory):
    assert library.free_engine(freed) == Status.GLM_INVALID_ARGUMENT
    with open_engine(directory) as later:
        assert library.free_engine(freed) == Status.GLM_INVALID_ARGUMENT
        assert later.info()["max_batch"] == 2


def states_refused(engine: Engine, state) -> None:
    """A handle that is no state of this engine is refused by all that takes one."""
    library, message = engine.library, abi.Message()
    logits = (ctypes.c_float * engine.vocab_size)()
    states, tokens = (abi.StatePointer * 1)(state), (ctypes.c_int32 * 1)()
    sampling = (abi.SamplingStruct * 1)()
    calls = [
        lambda: library.decode_step(engine.pointer, state, 1, logits, message),
        lambda: library.run_batch_decode(engine.pointer, 1, states, sampling, 1, tokens, message),
    ]
    for call in calls:
        assert call() == Status.GLM_INVALID_ARGUMENT
        assert message.text == b"the state is null, already freed or from another engine"
    assert library.free_request_state(engine.pointer, state) == Status.GLM_INVALID_ARGUMENT


def test_a_freed_state_is_refused(engine):
    state, _ = engine.prefill([1, 2, 3])
    handle = state.pointer
    state.close()
    states_refused(engine, handle)
    later, _ = engine.prefill([1, 2, 3])
    states_refused(engine, handle)
    assert engine.decode_step(later, 4).shape == (engine.vocab_size,)
    later.close()


def test_a_state_ends_with_its_engine(directory, engine):
    other = open_engine(directory)
    state, _ = other.prefill([1, 2, 3])
    states_refused(engine, state.pointer)
    other.states.clear()
    other.close()
    states_refused(engine, state.pointer)


def test_a_handle_of_another_kind_is_refused(library, engine):
    as_state = ctypes.cast(engine.pointer, abi.StatePointer)
    states_refused(engine, as_state)
    text = ctypes.cast(engine.pointer, abi.TextPointer)
    assert library.engine_text_free(text) == Status.GLM_INVALID_ARGUMENT
    assert engine.info()["max_batch"] == 2


def inspected(library, path: Path):
    text, message = abi.TextPointer(), abi.Message()
    status = library.engine_inspect(os.fsencode(path), ctypes.byref(text), ctypes.byref(message))
    assert status == Status.GLM_OK, message.text
    return text


def test_a_text_is_freed_once(library):
    text = inspected(library, CAPITALS / "config.json")
    assert library.engine_text_size(text) == len(library.engine_text_data(text))
    assert library.engine_text_free(text) == Status.GLM_OK
    assert library.engine_text_data(text) is None
    assert library.engine_text_size(text) == -1
    assert library.engine_text_free(text) == Status.GLM_INVALID_ARGUMENT


def test_one_of_many_threads_frees_a_text(library):
    texts = [inspected(library, CAPITALS / "config.json") for _ in range(64)]
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(library.engine_text_free, texts * 4))
    assert statuses.count(Status.GLM_OK) == len(texts)
    assert statuses.count(Status.GLM_INVALID_ARGUMENT) == 3 * len(texts)
