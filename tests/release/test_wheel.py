"""The wheel: what it holds, which C library it needs, and what it does in an empty environment."""

import re
import shutil
import subprocess
import zipfile
from email import message_from_bytes

from tests.release.environments import Environment, make_environment
from tests.server.serving import QUESTION, ROOT, ServerProcess

SYMBOL_VERSION = re.compile(r"\b([A-Z]+)_(\d+(?:\.\d+)*)\b")
TAG = re.compile(r"-py3-none-manylinux_(\d+)_(\d+)_x86_64\.whl$")
NEWEST_GLIBC = (2, 34)
PLANS = "build/libglm_cuda_plan.so"
MODEL = "glm-4.7-fp8"


def needed_versions(path):
    """Every (library, version) that the dynamic symbols of a library ask for, by readelf."""
    command = ["readelf", "--version-info", "--wide", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needs = text.partition("Version needs section")[2]
    return {
        (name, tuple(map(int, number.split(".")))) for name, number in SYMBOL_VERSION.findall(needs)
    }


def libraries_of(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        return [archive.extract(name, folder) for name in names]


def test_the_tag_is_the_newest_c_library_that_a_symbol_needs(wheel, tmp_path):
    versions = set().union(*map(needed_versions, libraries_of(wheel, tmp_path)))
    assert {name for name, _ in versions} == {"GLIBC"}
    newest = max(number for _, number in versions)
    assert newest <= NEWEST_GLIBC
    assert tuple(map(int, TAG.search(wheel.name).groups())) == newest


def test_it_holds_what_the_package_finds(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    headers = [f"native/include/glm/{name}.h" for name in ("backend", "engine", "status")]
    for name in ("build/engine.so", "build/libglm_cpu.so", PLANS, *headers):
        assert f"glm_engine/{name}" in held
    beside = {"checkpoints/capitals": "checkpoints/capitals", "python/glm_engine": "."}
    for folder, place in beside.items():
        command = ["git", "ls-files", "-z", "--", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, done.stdout.split("\0")):
            inside = name.removeprefix(f"{folder}/")
            assert f"glm_engine/{place}/{inside}".replace("/./", "/") in held
    assert [name for name in held if "cuda" in name] == [f"glm_engine/{PLANS}"]
    assert not [name for name in held if "__pycache__" in name]


def test_its_version_says_that_it_has_no_cuda_device(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Version"].endswith("+cpu")
    assert not [
        one for one in metadata.get_all("Requires-Dist") if "==" in one and "extra" not in one
    ]


def test_smoke_from_any_folder_without_write_access(installed, tmp_path):
    assert "passed      yes" in installed.glm("smoke", "--device", "cpu", cwd=tmp_path)
    assert "within their limits" in installed.glm("verify", "--device", "cpu", cwd=tmp_path)


def test_doctor_and_deploy_plan_need_no_checkout(installed, tmp_path):
    doctor = installed.glm("doctor", cwd=tmp_path)
    assert "part of the wheel" in doctor
    rows = {line.split()[0] for line in doctor.splitlines() if line}
    assert {"engine.so", "NVRTC"} <= rows
    assert not rows & {"futhark", "terra", "scons", "nvcc", "NCCL"}
    planned = installed.glm("deploy", "plan", "--dry-run", cwd=tmp_path)
    assert 'pip install "glm-engine[modal]"' in planned


def test_it_plans_gpus_without_one(installed, tmp_path):
    arguments = (MODEL, "--device-memory", "141GB", "--world-size", "4")
    printed = installed.glm("plan", *arguments, cwd=tmp_path)
    assert printed.splitlines()[-1] == "Fits."
    assert "GPUs                 4 with 141.0 GB of free memory each" in printed


def test_serve_from_any_folder(installed, tmp_path):
    command = (installed.folder / "bin" / "glm", "serve")
    server = ServerProcess(tmp_path, command=command, cwd=tmp_path, environment={"PYTHONPATH": ""})
    body = {"prompt": QUESTION, "max_tokens": 4}
    answer = server.http.post("/v1/completions", json=body).json()
    page = server.http.get("/")
    assert server.stop() == 0
    assert "Paris" in answer["choices"][0]["text"]
    assert page.status_code == 200


def test_uninstalled_nothing_is_left(installed, tmp_path):
    copy = Environment(tmp_path / "copy")
    shutil.copytree(installed.folder, copy.folder, symlinks=True)
    empty = make_environment(tmp_path / "empty").files()
    assert copy.files() > empty
    copy.pip("uninstall", "--yes", "glm-engine")
    assert copy.files() == empty
