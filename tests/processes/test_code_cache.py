"""Compiled code on disk: shared by processes, never missed, never trusted when damaged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import warnings
from pathlib import Path

import pytest

from fastmetric import _code_cache
from fastmetric.core.kernels import GAUSSIAN, kernel_value, smooth_value
from tests.processes.test_processes import ROOT, heard, needs_fork, start

# Compiled within a second; the two functions call others, which have no code of their own.
CODE = (
    "from fastmetric.core.kernels import kernel_value, smooth_value; "
    "say(value=kernel_value(0, 0.3) + smooth_value(0, 0.3), **counted())"
)
ENTRIES = 2
VALUE = kernel_value(GAUSSIAN, 0.3) + smooth_value(GAUSSIAN, 0.3)
WARNS = "import warnings; warnings.simplefilter('always'); "
needs_locks = pytest.mark.skipif(_code_cache.fcntl is None, reason="no file locks on this system")


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Path:
    """Return a folder with all code that `CODE` needs."""
    folder = tmp_path_factory.mktemp("warm")
    said = heard(start(CODE, NUMBA_CACHE_DIR=str(folder)))
    assert said == {"value": VALUE, "loaded": 0, "compiled": ENTRIES}
    assert len(entries(folder)) == ENTRIES
    return folder


@pytest.fixture
def folder(warm, tmp_path) -> Path:
    """Return a copy of it to damage."""
    return shutil.copytree(warm, tmp_path / "cache")


def entries(folder: Path) -> list[Path]:
    """Return the files of compiled code."""
    return sorted(folder.rglob("*.nbc"))


def run(folder: Path) -> tuple[dict, str]:
    """Return what a process with this cache says, and its warnings."""
    process = start(WARNS + CODE, NUMBA_CACHE_DIR=str(folder))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def test_code_from_the_cache_is_loaded_not_compiled(warm):
    said, err = run(warm)
    assert said == {"value": VALUE, "loaded": ENTRIES, "compiled": 0}
    assert "compiled" not in err


@needs_locks
def test_processes_at_once_compile_each_function_once(tmp_path):
    processes = [start(CODE, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(4)]
    said = [heard(process) for process in processes]
    assert {facts["value"] for facts in said} == {VALUE}
    assert sum(facts["compiled"] for facts in said) == ENTRIES


DAMAGES = {
    "empty": lambda content: b"",
    "cut in the stamp": lambda content: content[:20],
    "cut in the digest": lambda content: content[:50],
    "cut in the code": lambda content: content[:-10],
    "one bit": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "longer": lambda content: content + b"0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_not_loaded(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(_code_cache, "_said", set())
    files = _code_cache._Entries(str(tmp_path), "function")
    key, code = ("signature", "processor"), b"compiled" * 10
    files.save(key, code)
    assert files.load(key) == code
    assert files.load(("other", "processor")) is None
    (path,) = [path for path in entries(tmp_path) if path.stat().st_size]
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert files.load(key) is None
        assert files.load(key) is None
    assert len(said) == (damage != "empty")
    files.save(key, code)
    assert files.load(key) == code


def test_damaged_code_is_compiled_again(folder):
    for path in entries(folder):
        os.truncate(path, path.stat().st_size - 100)
    said, err = run(folder)
    assert said == {"value": VALUE, "loaded": 0, "compiled": ENTRIES}
    assert err.count("is damaged; it is compiled again") == 1
    said, err = run(folder)
    assert said["compiled"] == 0
    assert "damaged" not in err


@pytest.mark.skipif(os.name != "posix", reason="no limit of the size of a file")
def test_a_full_disk_costs_time_and_one_warning(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); "
    process = start(WARNS + limit + CODE, NUMBA_CACHE_DIR=str(tmp_path))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["value"] == VALUE
    assert err.count("cannot be kept") == 1
    assert "NUMBA_CACHE_DIR" in err
    assert all(path.stat().st_size == 0 for path in entries(tmp_path))


def test_an_entry_that_is_a_folder_is_no_obstacle(folder):
    for path in entries(folder):
        path.unlink()
        path.mkdir()
    said, err = run(folder)
    assert said["value"] == VALUE
    assert err.count("cannot be kept") == 1


@needs_locks
def test_a_process_killed_while_it_compiles_leaves_no_trace(tmp_path):
    process = start(CODE, NUMBA_CACHE_DIR=str(tmp_path))
    while not entries(tmp_path) and process.poll() is None:
        time.sleep(0.01)
    waiting = start(CODE, NUMBA_CACHE_DIR=str(tmp_path))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert heard(waiting)["value"] == VALUE


@needs_locks
@needs_fork
def test_a_forked_child_does_not_keep_its_parents_locks(tmp_path):
    path = tmp_path / "entry"
    _code_cache._locks.take(path)
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        _code_cache._locks.release(path)
        began = time.monotonic()
        _code_cache._locks.take(path)
        _code_cache._locks.release(path)
        assert time.monotonic() - began < 10
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_edit_in_the_core_is_seen_elsewhere_it_is_not(tmp_path):
    for package in ("fastmetric", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}
    first = heard(start(CODE, root=tmp_path, **cache))
    assert first["compiled"] == ENTRIES
    for edited, compiled in (("learn/rows.py", 0), ("core/kernels.py", first["compiled"])):
        with open(tmp_path / "fastmetric" / edited, "a") as file:
            file.write("\n_EDITED = 1\n")
        said = heard(start(CODE, root=tmp_path, **cache))
        assert said["compiled"] == compiled, edited
        assert said["value"] == first["value"]


_CACHE_VARIABLES = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA")


def test_the_package_works_without_a_writable_cache_folder(tmp_path):
    # Root may write anywhere, but not below a file: that is what each of Numba's folders is.
    for package in ("fastmetric", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()
    nowhere = {name: str(tmp_path / "tests/__pycache__/cache") for name in _CACHE_VARIABLES}
    code = CODE + "; say(paths=[x.stats.cache_path for x in dispatchers()], **counted())"
    said = heard(start(code, root=tmp_path, PYTHONPATH="", **nowhere))
    assert set(said["paths"]) == {None}
    assert said["loaded"] == 0
    assert said["compiled"] == ENTRIES


def test_code_just_compiled_and_code_loaded_give_the_same_bits(tmp_path):
    code = "say(bits=gradient_bits())"
    cold, loaded = (heard(start(code, NUMBA_CACHE_DIR=str(tmp_path))) for _ in range(2))
    assert cold == loaded
