"""What all benchmarks share: data sets, timing, peak memory."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
N_CLASSES = 10
_REST = 0.3  # seconds between two timed runs


class UnavailableError(Exception):
    """A benchmark cannot run here; the message says why."""


# Data sets


class Problem(NamedTuple):
    """A map A (d, D), data X (n, D) and classes y (n,)."""

    A: np.ndarray
    X: np.ndarray
    y: np.ndarray


class Split(NamedTuple):
    """Rows to learn from, X (n, D) and y (n,), and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class _Source(NamedTuple):
    """Where a data set is on OpenML, and how many of its first rows are for training."""

    data_id: int
    n_train: int | None  # None: not split


_OPENML = {
    "usps": _Source(41082, 7291),
    "mnist": _Source(554, 60_000),
    "covertype": _Source(1596, None),
    "balance-scale": _Source(11, None),
    "ionosphere": _Source(59, None),
    "pima": _Source(37, None),
    "letter": _Source(6, None),
    "isolet": _Source(300, 6238),
}


def random_map(d: int, D: int, seed: int = 1) -> np.ndarray:
    """Return a map (d, D) that keeps the scale of standard normal data."""
    return np.random.default_rng(seed).standard_normal((d, D)) / np.sqrt(D)


def random_normal(n: int, D: int, d: int, seed: int = 0) -> Problem:
    """Return standard normal data in ten classes drawn at random, and a random map."""
    rng = np.random.default_rng(seed)
    return Problem(random_map(d, D), rng.standard_normal((n, D)), rng.integers(N_CLASSES, size=n))


def training_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, D), float64, and y (n,) of the training rows of "usps" or "mnist"."""
    arrays = _arrays(name)
    train = arrays["train"]
    return arrays["X"][train].astype(np.float64), arrays["y"][train]


def customary_split(name: str) -> Split:
    """Return the published training and test rows of "usps", "mnist" or "isolet", float32."""
    arrays = _arrays(name)
    X, y, train, test = arrays["X"], arrays["y"], arrays["train"], arrays["test"]
    return Split(X[train].astype(np.float32), y[train], X[test].astype(np.float32), y[test])


def all_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, D), float64, and y (n,) of a set without a customary split.

    "iris" and "wine" come with scikit-learn.
    """
    if name in ("iris", "wine"):
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)
    arrays = _arrays(name)
    return arrays["X"].astype(np.float64), arrays["y"]


def covertype(n: int, columns: int, standardised: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, columns), float64, and y (n,): random rows and the first columns of covertype.

    The first ten columns are the quantitative ones. They are standardised over all rows, so that
    fewer rows are a part of more.
    """
    X, y = _whole_covertype()
    X, chosen = X[:, :columns].astype(np.float64), np.random.default_rng(0).permutation(len(X))[:n]
    if standardised:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[chosen], y[chosen]


@functools.cache  # many cases begin with it
def _whole_covertype() -> tuple[np.ndarray, np.ndarray]:
    """Return the ten quantitative columns of all rows, and the classes."""
    arrays = _arrays("covertype")
    return arrays["X"][:, :10].copy(), arrays["y"]


def _arrays(name: str) -> dict[str, np.ndarray]:
    """Return "X", "y" and, of a split set, the rows "train" and "test".

    From the folder FASTMETRIC_DATA if it has them, else from OpenML.
    """
    if (path := _stored(name)) is None:
        return _from_openml(name)
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _stored(name: str) -> Path | None:
    """Return the file of a data set in the folder FASTMETRIC_DATA; None if there is none."""
    folder = os.environ.get("FASTMETRIC_DATA")
    path = Path(folder) / f"{name}.npz" if folder else None
    return path if path is not None and path.is_file() else None


def _from_openml(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a data set as OpenML has it, kept on disk by scikit-learn."""
    from sklearn.datasets import fetch_openml

    source = _OPENML[name]
    parser = "pandas" if importlib.util.find_spec("pandas") else "liac-arff"
    try:
        X, y = fetch_openml(data_id=source.data_id, return_X_y=True, as_frame=False, parser=parser)
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"no {name}.npz in the folder named by FASTMETRIC_DATA, and OpenML did not answer "
            f"({error})"
        ) from error
    arrays = {"X": X, "y": np.unique(y, return_inverse=True)[1]}
    if source.n_train is not None:
        arrays["train"], arrays["test"] = np.split(np.arange(len(X)), [source.n_train])
    return arrays


# Time


class Timing(NamedTuple):
    """The seconds of every run of a task, and what the last one returned."""

    seconds: list[float]
    result: Any

    @property
    def best(self) -> float:
        """Return the shortest run: what else the machine did only ever adds."""
        return min(self.seconds)


def clock(task: Callable[[], Any]) -> Timing:
    """Return the timing of one run."""
    began = time.perf_counter()
    result = task()
    return Timing([time.perf_counter() - began], result)


def take_turns(
    tasks: Mapping[Any, Callable[[], Any]], repeats: int, once: Collection[Any] = ()
) -> dict[Any, Timing]:
    """Time every task `repeats` times, one after the other, under the same load of the machine.

    Those in `once`, which take minutes, run in the first round only.
    """
    timings: dict[Any, Timing] = {}
    for turn in range(repeats):
        for name, task in tasks.items():
            if turn and name in once:
                continue
            before = timings[name].seconds if turn else []
            timing = _rested(task)
            timings[name] = Timing(before + timing.seconds, timing.result)
    return timings


def _rested(task: Callable[[], Any]) -> Timing:
    """Return the timing of one run after a rest.

    BLAS threads spin for some 20 ms after their last call: that would count against whoever
    comes next.
    """
    time.sleep(_REST)
    return clock(task)


# Memory


def peak_memory(task: Callable[[], Any]) -> int | None:
    """Return by how many bytes `task` raises the resident memory over what is held before it.

    Linux counts the peak anew from here. Elsewhere it is the rise of the process's peak so far,
    a lower bound: run it early, in a fresh process. None where there is no such count.
    """
    _give_back_memory()
    _restart_peak()
    before = _peak()
    task()
    after = _peak()
    return None if before is None or after is None else after - before


def _give_back_memory() -> None:
    """Return freed memory to the system, as the task would otherwise use it unseen."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def _restart_peak() -> None:
    """Let the kernel count the peak from the present size on, where it can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int | None:
    """Return the peak of the resident memory in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
