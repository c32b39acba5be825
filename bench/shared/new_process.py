"""Runs one function of this package in a new process: for peaks of memory and for first calls.

    python -m bench.shared.new_process MODULE FUNCTION ARGUMENTS [CACHE]

ARGUMENTS is a JSON object of keyword arguments; the result is printed as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.shared.setup import ROOT, UnavailableError


def call(module: str, function: str, cache: str | Path | None = None, **arguments: Any) -> Any:
    """Return module.function(**arguments), run in a new process with `cache` as Numba's folder."""
    words = ["-m", "bench.shared.new_process", module, function, json.dumps(arguments)]
    return python(*words, *([] if cache is None else [str(cache)]))


def python(*words: str) -> Any:
    """Return the JSON on the last line that a new Python, given `words`, prints."""
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UnavailableError(f"the new process failed ({reason})")
    return json.loads(done.stdout.splitlines()[-1])


def main(module: str, function: str, arguments: str, cache: str | None = None) -> None:
    """Call the function and print its result."""
    if cache is not None:
        os.environ["NUMBA_CACHE_DIR"] = cache
    print(json.dumps(getattr(importlib.import_module(module), function)(**json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
