"""What the commands do on a machine whose driver says that a GPU is here, and where it is not."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from glm_engine.cli import command_line
from glm_engine.commands.smoke import way_to_cuda
from glm_engine.core import diagnosis, layout
from glm_engine.core.libraries import find_engine_library
from tests.nvidia_driver import DEVICE_FILES, write_driver
from tests.python.commands.running import CPU, ENVIRONMENT, glm, glm_json, refused

no_device_file = pytest.mark.skipif(
    any(Path(name).exists() for name in DEVICE_FILES),
    reason="an NVIDIA driver's device file is here",
)
REFUSAL = "device auto selected cuda because this machine has an NVIDIA GPU (use --device cpu "


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Puts a driver on the loader's path and takes the CUDA device's library away."""
    folder, built = tmp_path / "engine", find_engine_library().path.parent
    folder.mkdir()
    for name in ("engine.so", "libglm_cpu.so", "libglm_cuda_plan.so"):
        shutil.copy2(built / name, folder)
    monkeypatch.setitem(ENVIRONMENT, "GLM_ENGINE_LIBRARY", str(folder / "engine.so"))

    def write(status, num_gpus=1, version=13000, capability=(9, 0)):
        path = write_driver(tmp_path / "driver", status, num_gpus, version, capability=capability)
        monkeypatch.setitem(ENVIRONMENT, "LD_LIBRARY_PATH", str(path.parent))
        return path

    return write


@pytest.mark.parametrize(
    "arguments",
    [["smoke"], ["evaluate"], ["bench"], ["plan"], ["generate", "Hello"], ["serve", "--port", "0"]],
    ids=lambda arguments: arguments[0],
)
def test_auto_never_falls_back_where_a_gpu_is(driver, arguments):
    driver(status=0)
    message = refused(*arguments, code=3)
    assert REFUSAL in message
    assert message.endswith(
        "; in a source checkout, build it with `tools/develop --with cuda scons engine cuda`\n"
    )


def test_auto_refuses_a_driver_that_fails(driver):
    path = driver(status=999)
    message = f"the NVIDIA driver {path} failed with CUDA error 999"
    assert message in refused("plan", code=3)
    finding = driver_finding()
    assert finding["state"] == "absent"
    assert message in finding["detail"]


@no_device_file
@pytest.mark.parametrize(("status", "num_gpus"), [(100, 0), (0, 0)])
def test_auto_is_the_cpu_where_the_driver_sees_no_gpu(driver, status, num_gpus):
    path = driver(status, num_gpus)
    assert glm_json("plan")["device"] == "cpu"
    finding = driver_finding()
    assert (finding["state"], finding["how"]) == ("absent", str(path))
    assert finding["detail"] == "no GPU; --device auto uses the CPU"


def driver_finding():
    (found,) = [one for one in glm_json("doctor")["findings"] if one["name"] == "NVIDIA driver"]
    return found


def test_doctor_names_the_gpu_and_what_auto_means(driver):
    path = driver(status=0)
    finding = driver_finding()
    assert (finding["state"], finding["how"]) == ("found", str(path))
    assert finding["detail"] == "CUDA 13.0: H200 (9.0); --device auto uses CUDA"


@pytest.mark.parametrize("capability", [(8, 0), (12, 0)])
def test_doctor_leads_a_gpu_without_cuda_kernels_to_futhark(driver, capability):
    driver(status=0, capability=capability)
    finding = driver_finding()
    assert finding["state"] == "found"
    name = "H200 ({}.{})".format(*capability)
    note = "no CUDA kernels for it: use --device futhark"
    assert finding["detail"] == f"CUDA 13.0: {name}, {note}; --device auto uses Futhark's program"


def test_a_device_whose_compiler_is_absent_says_how_to_get_it(driver):
    driver(status=0, capability=(8, 9))
    folder = Path(ENVIRONMENT["GLM_ENGINE_LIBRARY"]).parent
    compiler = folder / "libnvrtc.so.0"
    cc = [os.environ.get("CC") or "cc", "-shared", "-x", "c", "/dev/null"]
    subprocess.run([*cc, f"-Wl,-soname,{compiler.name}", "-o", compiler], check=True)
    wanted = ["-x", "none", "-Wl,--no-as-needed", compiler, "-o", folder / "libglm_futhark.so"]
    subprocess.run([*cc, *wanted], check=True)
    compiler.unlink()
    install = "`pip install 'glm-engine[futhark]'`"
    message = refused("smoke", code=3)
    assert "device auto selected futhark because this machine has an NVIDIA GPU" in message
    assert "device futhark needs NVIDIA's compiler NVRTC: libnvrtc.so.0: " in message
    assert message.endswith(f"; install it with {install}\n")
    findings = {one["name"]: one for one in glm_json("doctor")["findings"]}
    assert findings["libglm_futhark.so"]["state"] == "absent"
    assert findings["libglm_futhark.so"]["detail"].endswith(
        f"; for NVRTC, install it with {install}"
    )


@pytest.mark.parametrize("is_here", [False, True])
def test_doctor_looks_for_the_compiler_of_futhark(monkeypatch, is_here):
    def load(name):
        assert name == "libnvrtc.so.13"
        if not is_here:
            raise OSError(name)

    monkeypatch.setattr(diagnosis.libraries, "open_nvrtc", lambda: None)
    monkeypatch.setattr(diagnosis.ctypes, "CDLL", load)
    found = diagnosis.nvrtc()
    assert (found.found, found.needed, found.for_development) == (is_here, False, False)
    assert is_here != found.detail.endswith("`pip install 'glm-engine[futhark]'`")


@pytest.mark.parametrize(("major", "is_untested"), [(9, False), (10, True)])
def test_a_kind_of_gpu_that_was_never_tested_leads_to_verify(
    tmp_path, monkeypatch, major, is_untested
):
    path = write_driver(tmp_path, capability=(major, 0))
    found = {"num_gpus": 1, "driver": str(path), "device": "cuda"}
    monkeypatch.setattr(diagnosis, "find_gpus", lambda: found)
    note = diagnosis.CAPABILITIES[diagnosis.UNTESTED] if is_untested else ""
    detail = f"CUDA 13.0: H200 ({major}.0){note}; --device auto uses CUDA"
    assert diagnosis.nvidia_driver().detail == detail
    line = diagnosis.untested_gpu()
    assert is_untested == (line is not None)
    assert line is None or "`glm verify` checks each operation" in line


def test_no_gpu_is_no_untested_one(monkeypatch):
    monkeypatch.setattr(diagnosis, "find_gpus", lambda: {"num_gpus": 0, "driver": ""})
    assert diagnosis.untested_gpu() is None


def test_doctor_names_the_least_driver_where_an_older_one_is(driver):
    driver(status=0, version=12080)
    finding = driver_finding()
    assert finding["state"] == "absent"
    needed = "too old; the engine needs driver 580 or newer (CUDA 13.0)"
    assert finding["detail"] == f"CUDA 12.8: H200 (9.0): {needed}"


@pytest.mark.usefixtures("driver")
def test_a_wheel_leads_to_the_gpu_without_the_checkouts_tools(monkeypatch):
    monkeypatch.setenv("GLM_ENGINE_LIBRARY", ENVIRONMENT["GLM_ENGINE_LIBRARY"])
    monkeypatch.setattr(layout, "IS_WHEEL", True)
    install = "install the wheel whose version does not end in +cpu"
    assert way_to_cuda() == f"{install}, then `glm smoke --device cuda`"
    library = find_engine_library().path.parent / "libglm_cuda.so"
    library.write_bytes(b"")
    assert way_to_cuda() == "`glm smoke --device cuda`"


@pytest.mark.usefixtures("driver")
def test_a_wheel_without_cuda_says_so(monkeypatch, capsys):
    monkeypatch.setenv("GLM_ENGINE_LIBRARY", ENVIRONMENT["GLM_ENGINE_LIBRARY"])
    monkeypatch.setattr(layout, "IS_WHEEL", True)
    assert command_line.main(["smoke", "--device", "cuda"]) == 3
    line = capsys.readouterr().err
    assert "cannot open the library for device cuda: libglm_cuda.so" in line
    advice = "This wheel has no CUDA support; install the wheel whose version does not end in +cpu"
    assert line.endswith(f". {advice}\n")
    assert "checkout" not in line
    (find_engine_library().path.parent / "libglm_cuda.so").write_bytes(b"")
    assert command_line.main(["smoke", "--device", "cuda"]) == 3
    line = capsys.readouterr().err
    assert "libglm_cuda.so: file too short" in line
    assert not re.search("checkout|wheel has", line)


def test_smoke_on_the_cpu_says_in_one_line_how_to_get_the_gpu(driver):
    driver(status=0)
    printed = glm("smoke", *CPU)
    assert printed.returncode == 0, printed.stderr
    (line,) = [line for line in printed.stdout.splitlines() if line.startswith("GPU ")]
    assert "`tools/develop --with cuda scons engine cuda`" in line
    assert "`tools/develop --with cuda glm smoke --device cuda`" in line


@no_device_file
def test_smoke_on_the_cpu_without_a_gpu_says_nothing_of_it(driver):
    driver(status=100)
    assert "GPU" not in glm("smoke", *CPU).stdout
