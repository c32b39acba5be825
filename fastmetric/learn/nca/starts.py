"""Where the search for A begins: which linear start, scaled to the kernel and to the solver."""

from __future__ import annotations

import numpy as np

from fastmetric.learn import linear_starts
from fastmetric.learn.kernel_table import KERNELS
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.training import Settings, annealing_rows

_WIDER = 3.0  # kernels at the start of steps by batches

# Rows that test whether a compact kernel reaches their neighbours; and the neighbours that it
# should reach.
_PROBES, _NEIGHBOURS = 64, 10


def resolved_start(
    settings: Settings, n_features: int, n: int, n_classes: int
) -> tuple[int, str | np.ndarray]:
    """Return the dimension to start with, and the start: a name but "auto", or an array."""
    if not isinstance(settings.init, str):
        return len(settings.init), settings.init
    d = settings.n_components or n_features
    if settings.annealing:
        d = annealing_rows(d, n_features)
    return d, resolve(settings.init, d, n_features, n, n_classes)


def resolve(name: str, d: int, n_features: int, n_samples: int, n_classes: int) -> str:
    """Return what "auto" stands for, as in scikit-learn; other names unchanged."""
    if name == "lda" and d > n_classes - 1:
        raise ValueError(
            f"init='lda' gives at most n_classes - 1 = {n_classes - 1} directions; n_components is "
            f"{d}. Choose init='rca' or 'pca', or fewer components."
        )
    if name == "pca" and d > min(n_features, n_samples):
        raise ValueError(
            f"init='pca' gives at most min(n_samples, n_features) = {min(n_features, n_samples)} "
            f"directions; n_components is {d}. Choose init='identity' or fewer components."
        )
    if name != "auto":
        return name
    if d <= min(n_features, n_classes - 1):
        return "lda"
    return "pca" if d < min(n_features, n_samples) else "identity"


def starting_map(
    init: str | np.ndarray,
    d: int,
    problem: Objective,
    settings: Settings,
    rng: np.random.RandomState,
    *,
    in_batches: bool,
) -> np.ndarray:
    """Return the map of d rows to start from; `init` is a name but "auto", or the map itself."""
    biweight = problem.mixture.kernel == "biweight"
    if isinstance(init, str):
        price = settings.alpha / len(problem.X)
        init = linear_starts.start(init, d, problem.X, problem.labels, rng, price)
        init = adapted(init, problem.mixture.kernel, in_batches)
    return within_reach(init, problem) if biweight else init


def adapted(A: np.ndarray, kernel: str, in_batches: bool) -> np.ndarray:
    """Return a start scaled to the kernel and to the solver.

    The biweight kernel's variance in every coordinate is made that of exp(-s), 1/2.
    The noise of steps by batches increases the scale: they begin with kernels three times as wide.
    """
    if kernel == "biweight":
        A = A * np.sqrt(2 * KERNELS[kernel].variance(len(A)))
    return A / _WIDER if in_batches else A


def within_reach(A: np.ndarray, problem: Objective) -> np.ndarray:
    """Return the map, scaled down if most rows have no neighbour within a compact kernel's cutoff.

    Rows without neighbours have no gradient. The map is then scaled so that the median row reaches
    its k-th neighbour, k a hundredth of all rows, ten at least.
    """
    Z = problem.project(A).astype(np.float64)
    n = len(Z)
    k = min(n - 1, max(_NEIGHBOURS, n // 100))
    rows = np.arange(0, n, max(1, n // _PROBES))
    squares = np.empty((len(rows), 2))  # to the nearest other row, and to the k-th
    for at, i in enumerate(rows):
        gaps = Z - Z[i]
        sq = np.einsum("ij,ij->i", gaps, gaps)
        sq[i] = np.inf
        squares[at] = np.partition(sq, (0, k - 1))[[0, k - 1]]
    nearest, kth = np.median(squares, axis=0)
    if nearest < 1:
        return A
    return A / np.sqrt(kth)
