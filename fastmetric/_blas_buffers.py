"""Makes OpenBLAS map its work buffers while there is memory for them, or raises MemoryError.

OpenBLAS needs a work buffer for every thread that is in it at the same time. It maps one when a
product first finds all others in use, and keeps it for ever. Where the mapping fails, version
0.3.31 ends the process and 0.3.30 tries again without end; no caller can catch that. So the engine
has the buffers mapped before its threads call BLAS. A mapping of the same kind, released at once,
shows that there is memory; then the buffers are taken, all of them before the first is given back,
by the two functions with which OpenBLAS's own routines take theirs.

NumPy and SciPy bring a copy of OpenBLAS each, with buffers of its own. Other BLAS libraries do not
have these functions and are left alone.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The copies in the wheels of NumPy and SciPy are built with BUFFERSIZE=20: 32 << 20 bytes. For
# other builds, the largest default of OpenBLAS's headers (common_*.h): POWER has 64 << 22, all
# others have at most 32 << 22.
_WHEEL_PREFIX = "libscipy_openblas"
_WHEEL_BYTES = 32 << 20
_OTHER_BYTES = 64 << 22 if platform.machine().startswith("ppc") else 32 << 22

# A copy has places for 50 buffers or more, and says so on stderr where they do not suffice.
_MOST = 48

_STATM = Path("/proc/self/statm")


class _Copy:
    """One loaded OpenBLAS, and the buffers that are taken from it at the moment."""

    def __init__(self, library: Any) -> None:
        self.buffer_bytes = _WHEEL_BYTES if library.prefix == _WHEEL_PREFIX else _OTHER_BYTES
        self.held: list[int] = []
        # By item, not by attribute: the argument types are set on a function object of our own.
        self._alloc, self._free = (
            library.dynlib[name] for name in ("blas_memory_alloc", "blas_memory_free")
        )
        self._alloc.argtypes, self._alloc.restype = [ctypes.c_int], ctypes.c_void_p
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None

    def take(self) -> bool:
        """Take a buffer; return whether it is new, as far as is known."""
        before = _data_bytes()
        self.held.append(self._alloc(0) or 0)  # 0: its table is full, and it has said so
        return before is None or (_data_bytes() or 0) - before >= self.buffer_bytes // 8

    def give_back(self) -> None:
        """Give all buffers back: they stay mapped, for whoever calls BLAS next."""
        for address in filter(None, self.held):
            self._free(address)
        self.held.clear()


class BlasBuffers:
    """The buffers of all copies of OpenBLAS; the caller sees to it that one thread is in `have`."""

    def __init__(self) -> None:
        self._mapped = 0  # buffers that every copy is known to have

    def have(self, threads: int, libraries: Sequence[Any]) -> None:
        """Have a buffer mapped for each of so many threads, in every copy, or raise MemoryError.

        `libraries` are threadpoolctl's. Where memory does not suffice, a copy has mapped at most
        one buffer more.
        """
        threads = min(threads, _MOST)
        if threads <= self._mapped:
            return
        copies = [_Copy(library) for library in libraries if _has_buffers(library)]
        try:
            # A copy gives mapped buffers out first. How many it has cannot be asked: the first
            # new one shows that there were no more.
            for copy in copies:
                while len(copy.held) < threads:
                    if not _can_map(copy.buffer_bytes):
                        raise MemoryError(_message(threads, copies))
                    if copy.take():
                        break
            if not _can_map(_missing_bytes(threads, copies)):
                raise MemoryError(_message(threads, copies))
            for copy in copies:
                while len(copy.held) < threads:
                    copy.take()
        finally:
            for copy in copies:
                copy.give_back()
        self._mapped = threads

    def reset_after_fork(self) -> None:
        """Know nothing: a buffer that a thread of the parent was using stays in use for ever."""
        self._mapped = 0


def _has_buffers(library: Any) -> bool:
    """Return whether a library is an OpenBLAS whose buffers can be taken."""
    return (
        library.internal_api == "openblas"
        and hasattr(mmap, "MAP_PRIVATE")
        and hasattr(library.dynlib, "blas_memory_alloc")
        and hasattr(library.dynlib, "blas_memory_free")
    )


def _missing_bytes(threads: int, copies: list[_Copy]) -> int:
    """Return the bytes of the buffers that are still to be taken."""
    return sum((threads - len(copy.held)) * copy.buffer_bytes for copy in copies)


def _can_map(size: int) -> bool:
    """Return whether the system grants so many bytes, by a mapping of the kind that BLAS makes."""
    if size == 0:
        return True
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


def _data_bytes() -> int | None:
    """Return the size of the process's writable private memory, None if it is not known."""
    try:
        return int(_STATM.read_text().split()[5]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return None


def _message(threads: int, copies: list[_Copy]) -> str:
    """Return what is missing and what to do."""
    size = max(copy.buffer_bytes for copy in copies)
    several = f", in each of {len(copies)} copies of OpenBLAS" if len(copies) > 1 else ""
    of_threads = "one thread" if threads == 1 else f"{threads} threads"
    return (
        f"The work buffers of BLAS for {of_threads} take up to "
        f"{_missing_bytes(threads, copies) / 1e6:.0f} MB more, {size / 1e6:.0f} MB a "
        f"thread{several}, and the system does not grant them. Take fewer threads by n_jobs, or "
        "raise the limit on the memory of the process (ulimit -d and -v)."
    )
