"""The shared cache saves work between checkouts and never stops a build."""

from pathlib import Path

import pytest
import SCons.Errors
from shared_cache import SharedCache, cache_folder

from tests.build.checkouts import small_checkout

LIBRARIES = ("libglm_cpu.so", "engine.so", "debug/engine.so")


def library_bytes(checkout):
    return [(checkout.path / "build" / name).read_bytes() for name in LIBRARIES]


def test_second_checkout_builds_from_the_cache(tmp_path):
    variables = {"GLM_BUILD_CACHE": str(tmp_path / "cache")}
    first = small_checkout(tmp_path / "first", variables)
    first.scons()
    second = small_checkout(tmp_path / "a longer path/second", variables)
    printed = second.scons()
    assert "compile" not in printed
    assert printed.count("from cache") >= len(LIBRARIES)
    assert library_bytes(first) == library_bytes(second)


@pytest.mark.parametrize("kind", ["below a file", "a file", "unreadable entries"])
def test_unusable_cache_costs_nothing_but_time(tmp_path, kind):
    cache = unusable_cache(tmp_path / "cache", kind)
    checkout = small_checkout(tmp_path / "checkout", {"GLM_BUILD_CACHE": str(cache)})
    checkout.scons()
    assert all(library_bytes(checkout))


def unusable_cache(path, kind):
    if kind == "unreadable entries":
        for number in range(256):
            path.mkdir(exist_ok=True)
            (path / f"{number:02X}").write_text("")
        return path
    path.write_text("")
    return path / "below" if kind == "below a file" else path


def test_failing_push_is_told_once(monkeypatch, capsys):
    def full(*_):
        raise SCons.Errors.SConsEnvironmentError("No space left on device")

    monkeypatch.setattr("SCons.CacheDir.CacheDir.push", full)
    cache = SharedCache("folder")
    cache.push("one")
    cache.push("two")
    assert capsys.readouterr().out.count("No space left on device") == 1


def test_failing_retrieve_leaves_nothing_half_written(monkeypatch, tmp_path):
    half = tmp_path / "half"

    def breaks_off(*_):
        half.write_text("ha")
        raise OSError("Input/output error")

    monkeypatch.setattr("SCons.CacheDir.CacheDir.retrieve", breaks_off)
    assert SharedCache("folder").retrieve(half) is False
    assert not half.exists()


def test_folder_follows_the_environment():
    assert cache_folder({"GLM_BUILD_CACHE": "off"}) is None
    assert cache_folder({"GLM_BUILD_CACHE": "/caches/x"}) == "/caches/x"
    assert cache_folder({"XDG_CACHE_HOME": "/xdg"}) == "/xdg/glm-engine/build"
    assert cache_folder({}) == str(Path.home() / ".cache/glm-engine/build")


def test_read_only_cache_still_serves(tmp_path):
    cache = tmp_path / "cache"
    variables = {"GLM_BUILD_CACHE": str(cache)}
    small_checkout(tmp_path / "first", variables).scons()
    folders = [cache, *filter(Path.is_dir, cache.iterdir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        printed = small_checkout(tmp_path / "second", variables).scons()
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert "from cache" in printed
