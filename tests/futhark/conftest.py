from tests.native.conftest import backend, device

__all__ = ["backend", "device"]
