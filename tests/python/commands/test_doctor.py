"""`glm doctor` after a build."""

from tests.python.commands.running import glm_json


def test_doctor_finds_what_was_built():
    report = glm_json("doctor")
    assert report["missing"] == []
    states = {one["name"]: one["state"] for one in report["findings"]}
    assert states["engine.so"] == states["libglm_cpu.so"] == "found"
