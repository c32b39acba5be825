"""Sets up the run before the package is imported: the cache of compiled code, Hypothesis."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
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

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
