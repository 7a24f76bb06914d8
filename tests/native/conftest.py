import pytest

from tests.native.backend import Backend, library_path


@pytest.fixture(scope="session")
def backend(request) -> Backend:
    kind = request.config.getoption("--device-kind")
    if not library_path(kind).exists():
        pytest.fail(f"expected {library_path(kind)}, got no such file: build the libraries first")
    return Backend(kind)


@pytest.fixture
def device(backend):
    with backend.device(num_threads=2) as opened:
        yield opened
