"""Sets up the run before the package is imported: the cache of compiled code, Hypothesis."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings

PACKAGE = Path(__file__).resolve().parents[1] / "fastmetric"


def digest_of_sources(package: Path) -> str:
    """Return a digest of the names and contents of all modules of `package`."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


# Numba's cache does not notice an edit in another file than the function's own: a folder per
# state of the sources. Processes started by the tests inherit it.
os.environ["NUMBA_CACHE_DIR"] = str(
    Path(tempfile.gettempdir()) / f"fastmetric-cache-{digest_of_sources(PACKAGE)}"
)
if "numba" in sys.modules:  # pytest's warning filters import it, with the old setting
    sys.modules["numba"].core.config.reload_config()
if "fastmetric" in sys.modules:
    raise RuntimeError("fastmetric was imported before the cache folder was set.")


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Wait until no other process is between here and the end, for the same folder."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save_alone(cache_file: type) -> None:
    """Let one process at a time write to a folder of Numba's cache.

    Numba reads an index, adds the next free file to it, writes the index, then the file. Of two
    test processes doing so at once for two signatures of one function, both would take the same
    file, and the index could promise one signature and hold the other.
    """
    save = cache_file.save

    @functools.wraps(save)
    def save_locked(self, key, data):
        with alone_in(self._cache_path):
            save(self, key, data)

    cache_file.save = save_locked


from numba.core.caching import IndexDataCacheFile  # noqa: E402  (once the folder is named)

save_alone(IndexDataCacheFile)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
