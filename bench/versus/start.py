"""What a new process pays before it works at full speed: the import, and the first small fit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import numba.core.event
import numpy as np
from sklearn.datasets import load_iris

from bench.shared import new_process
from bench.shared.report import Row
from bench.shared.setup import Problem, clock
from bench.sides import nca as both

_BASE_IMPORTS = "numba, scipy.optimize, sklearn.base"
_IMPORT_SECONDS = f"""
import json, time
began = time.perf_counter()
import {_BASE_IMPORTS}
between = time.perf_counter()
import fastmetric
print(json.dumps([between - began, time.perf_counter() - between]))
"""


def rows(processes: int, cold: bool) -> Iterator[Row]:
    """Yield the import and the first fit, best of so many processes, and a cold start if wanted."""
    yield _import_row(processes)
    yield _first_fit_row(processes)
    yield _cold_row(cold)


def _import_row(processes: int) -> Row:
    """Return what importing fastmetric adds to the libraries it stands on."""
    runs = [new_process.python("-c", _IMPORT_SECONDS) for _ in range(processes)]
    base, added = (min(seconds) for seconds in zip(*runs, strict=True))
    return Row(
        "start",
        "import fastmetric",
        our_seconds=added,
        note=f"added to {base:.2g} s for {_BASE_IMPORTS}",
        details={"base_and_added_seconds": runs},
    )


def _first_fit_row(processes: int) -> Row:
    """Return the first fit in a new process, our code in the cache."""
    first_fit("ours")  # fills the cache, which the new processes share
    rounds = [
        {side: new_process.call(__name__, "first_fit", side=side) for side in ("peer", "ours")}
        for _ in range(processes)
    ]
    seconds = {side: [one[side]["seconds"] for one in rounds] for side in ("peer", "ours")}
    compilations = max(one["ours"]["compilations"] for one in rounds)
    return Row(
        "start",
        "first fit, iris, cache warm",
        peer_seconds=min(seconds["peer"]),
        our_seconds=min(seconds["ours"]),
        note=f"{compilations} functions compiled",
        details={"peer_all_seconds": seconds["peer"], "our_all_seconds": seconds["ours"]},
    )


def _cold_row(wanted: bool) -> Row:
    """Return the first fit in a new process that has to compile its code."""
    row = Row("start", "first fit, iris, cache empty")
    if not wanted:
        row.note = "not run: only without --quick"
        return row
    with tempfile.TemporaryDirectory() as folder:
        cold = new_process.call(__name__, "first_fit", folder, side="ours")
    row.our_seconds, row.note = cold["seconds"], f"{cold['compilations']} functions compiled"
    return row


def first_fit(side: str) -> dict[str, Any]:
    """Return the seconds of this process's first fit, and how many functions it compiled."""
    X, y = load_iris(return_X_y=True)
    problem = Problem(np.eye(2, X.shape[1]), X, y)
    task = partial(both.peer_fit if side == "peer" else both.our_fit, problem, 10)
    with numba.core.event.install_recorder("numba:compile") as recorder:
        seconds = clock(task).best
    compilations = sum(event.is_start for _, event in recorder.buffer)
    return {"seconds": seconds, "compilations": compilations}
