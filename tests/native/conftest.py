import pytest

from glm_engine.verify.device import Backend, Device, library_path


@pytest.fixture(scope="session")
def backend(request) -> Backend:
    kind = request.config.getoption("--device-kind")
    if not library_path(kind).exists():
        pytest.fail(f"expected {library_path(kind)}, got no such file: build the libraries first")
    return Backend(kind)


@pytest.fixture(scope="session")
def lent():
    """The one device that tests take turns with; a test that loses it leaves None."""
    holder = {"device": None}
    yield holder
    if holder["device"] is not None:
        holder["device"].close()


@pytest.fixture
def device(backend, lent):
    opened = lent["device"] or Device(backend, num_threads=2)
    lent["device"] = None
    yield opened
    opened.release_blocks()
    lent["device"] = opened
