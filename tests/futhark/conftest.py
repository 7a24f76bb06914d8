from tests.native.conftest import backend, device, lent

__all__ = ["backend", "device", "lent"]
