"""A virtual environment into which a wheel is installed, and its commands."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

BARE = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Environment:
    """The folder of a virtual environment."""

    folder: Path

    @property
    def packages(self):
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.folder / "lib" / version / "site-packages"

    def pip(self, *arguments):
        """Run pip on this environment, without a network and without the caller's settings."""
        settings = ["--isolated", "--disable-pip-version-check", "--no-cache-dir"]
        python = self.folder / "bin" / "python"
        command = [sys.executable, "-m", "pip", *settings, "--python", python, *arguments]
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def glm(self, *arguments, cwd):
        """Run the installed `glm` with nothing of the checkout in its environment."""
        command = [self.folder / "bin" / "glm", *arguments]
        done = subprocess.run(command, cwd=cwd, env=BARE, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self):
        """Every file by its path in the environment, without what Python compiled."""
        found = {path.relative_to(self.folder) for path in self.folder.rglob("*")}
        return {path for path in found if "__pycache__" not in path.parts}


def make_environment(folder):
    """A virtual environment with the locked packages that the wheel asks for, and no engine."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    made = Environment(folder)
    dependencies = sysconfig.get_path("purelib")
    (made.packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return made
