"""A pytest plugin that writes the names of the kernels launched while the tests ran.

PyTorch's profiler listens to every launch of the process, also to those of libraries that
PyTorch knows nothing of. GLM_LAUNCHES names the file.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "GLM_LAUNCHES"
LISTENER = pytest.StashKey["Listener"]()


class Listener:
    def __init__(self, path: Path) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.zeros(1, device="cuda")
        self.path = path
        self.profiler = profile(activities=[ProfilerActivity.CUDA])
        self.profiler.start()

    def finish(self) -> None:
        self.profiler.stop()
        events = self.profiler.events()
        names = {event.name for event in events if event.device_type.name == "CUDA"}
        self.path.write_text("\n".join(sorted(names)) + "\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[LISTENER] = Listener(Path(os.environ[VARIABLE]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[LISTENER].finish()
