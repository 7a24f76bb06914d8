import pytest

from tests.build.checkouts import copied_checkout, small_checkout


@pytest.fixture(scope="session")
def built_small(tmp_path_factory):
    """A small checkout, built; tests that change it put it back."""
    checkout = small_checkout(tmp_path_factory.mktemp("small"))
    checkout.scons()
    return checkout


@pytest.fixture(scope="session")
def built_copy(tmp_path_factory):
    """A copy of this checkout, built; tests that change it put it back."""
    checkout = copied_checkout(tmp_path_factory.mktemp("copy"))
    checkout.variables = {}
    checkout.scons()
    return checkout
