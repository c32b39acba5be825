"""Compiled code on disk, shared by all processes: one file for a function and signature.

Numba's own cache keeps an index beside the code. Processes that save at once lose entries of the
index or mix them up, a truncated file ends the call, and an edit in a file that a function calls
into is missed. Here an entry is one file,

    stamp (32 bytes) | SHA-256 of the rest (32 bytes) | pickle of (key, code),

where the stamp is a digest of all that the code depends on. An entry with another stamp is
obsolete and is written anew; one that is damaged is reported and compiled again.

A process that does not find an entry locks its file until the code is saved, so that processes
which start together compile each function once. Functions that only compiled code calls have no
entry (`_jit`): a process holds one lock at a time, so no two wait for each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache

try:
    import fcntl
except ImportError:  # not a POSIX system: processes compile on their own
    fcntl = None  # type: ignore[assignment]

_DIGEST = 32  # bytes of SHA-256
_PATIENCE = 300.0  # seconds for which a process waits for the code of another
_POLL = 0.02  # seconds; short enough for Ctrl-C, and short against a compilation


def _stamp() -> bytes:
    """Return a digest of the sources that are compiled and of the compiler."""
    package = Path(__file__).parent
    digest = hashlib.sha256(repr((numba.__version__, llvmlite.__version__, sys.version)).encode())
    for path in [package / "_jit.py", *sorted((package / "core").rglob("*.py"))]:
        for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


# Of the sources as they are imported, whatever is edited while the process runs.
_STAMP = _stamp()

_said: set[str] = set()


def _say_once(problem: str, message: str) -> None:
    """Warn of a kind of problem, once in a process."""
    if problem not in _said:
        _said.add(problem)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


class _DamagedError(Exception):
    """An entry is not what was written."""


def _read(path: Path, key: Any) -> Any:
    """Return the code of an entry, None if there is none."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if not content or (len(content) >= _DIGEST and content[:_DIGEST] != _STAMP):
        return None
    payload = content[2 * _DIGEST :]
    if content[_DIGEST : 2 * _DIGEST] != hashlib.sha256(payload).digest():
        raise _DamagedError
    stored, code = pickle.loads(payload)
    return code if stored == key else None


class _Locks:
    """Files that this process has locked: it compiles their code."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, path: Path) -> None:
        """Lock a file as soon as no other process does; give up after a while, or if it fails."""
        if fcntl is None or path in self._held:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _wait_for(file)
            except BaseException:
                os.close(file)
                raise
            self._held[path] = file

    def release(self, path: Path) -> None:
        """Let other processes have the file."""
        file = self._held.pop(path, None)
        if file is not None:
            os.close(file)

    def forget(self) -> None:
        """Close all files in a process that has just been forked: the locks are its parent's."""
        for path in list(self._held):
            self.release(path)


def _wait_for(file: int) -> None:
    """Lock an open file, or raise a TimeoutError."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(_POLL)


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.forget)


class _Entries:
    """The files of one function; stands in for Numba's index and data files."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._name = name

    def _path(self, key: Any) -> Path:
        """Return the file of a key: signature, processor, digest of the byte code."""
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self._folder / f"{self._name}.{digest}.nbc"

    def load(self, key: Any) -> Any:
        """Return the code of `key`, or None with the entry locked: this process compiles it."""
        path = self._path(key)
        code = None
        with contextlib.suppress(_DamagedError):  # perhaps it is being written
            code = _read(path, key)
        if code is None:
            _locks.take(path)
            try:
                code = _read(path, key)
            except _DamagedError:
                _say_once(
                    "damaged",
                    f"The file {path} of compiled code is damaged; it is compiled again.",
                )
        if code is not None:
            _locks.release(path)
        return code

    def save(self, key: Any, code: Any) -> None:
        """Write the code of `key`; go on without if that fails."""
        path = self._path(key)
        payload = pickle.dumps((key, code), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            path.write_bytes(_STAMP + hashlib.sha256(payload).digest() + payload)
        except OSError as error:
            _say_once(
                "unsaved",
                f"Compiled code cannot be kept in {self._folder} ({error.strerror}); every process "
                "will compile it again. Free space there, or name another folder by the "
                "environment variable NUMBA_CACHE_DIR.",
            )
            with contextlib.suppress(OSError):
                os.truncate(path, 0)

    def release(self, key: Any) -> None:
        """Let other processes have the entry."""
        _locks.release(self._path(key))

    def flush(self) -> None:
        """Remove all code of the function."""
        for path in self._folder.glob(f"{self._name}.*.nbc"):
            path.unlink(missing_ok=True)


class CodeCache(FunctionCache):
    """Numba's cache of a function, with its entries in files of their own.

    Raises a RuntimeError if there is no folder for them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file: Any = _Entries(self._cache_path, self._impl.filename_base)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code for a signature."""
        try:
            super().save_overload(sig, data)
        finally:
            self._cache_file.release(self._index_key(sig, data.codegen))
