"""The modes of a kernel density: climbed to by certified sums, checked by exact ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from fastmetric import engine
from fastmetric.learn.climb import MEET, Ends, Steps, climb
from fastmetric.learn.sums import KernelSums

_ROUGH = 10  # times rtol: a shorter step by approximate sums is noise
_PROBE = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 1e-2}  # bandwidths, for differences
_NUDGE = 0.1  # bandwidths: away from a saddle
_ROUNDS = 10  # of nudges


class Climb(NamedTuple):
    """How to climb, and when to stop."""

    rtol: float  # of the sums on the way
    tol: float  # of h |grad log p| at the end
    max_iter: int
    label: str | None = None  # of a progress bar


class Modes(NamedTuple):
    """Modes by falling density, and the mode of each start."""

    points: np.ndarray  # (k, d)
    gradients: np.ndarray  # (k,): h |grad log p| by exact sums
    of_starts: np.ndarray  # (m,)
    n_left: int  # of them that were not reached: the gradient is not small, or it is a saddle
    n_iter: int


def find_modes(sums: KernelSums, starts: np.ndarray, how: Climb) -> Modes:
    """Return the modes that `starts` (m, d) climb to.

    By sums within `rtol` first, from where these end by exact ones; a saddle is left along its
    steepest direction. Ends in one place are one mode.
    """
    h, dtype = sums.bandwidth, sums.X.dtype
    # A step is a difference of coordinates: below their rounding it says nothing.
    rounding = 8 * float(np.finfo(dtype).eps) * float(np.abs(sums.X).max()) / h
    tol = max(how.tol, rounding)

    def exact(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums.shifts(points, label=how.label)

    def within_rtol(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums.shifts(points, rtol=how.rtol, label=how.label)

    ends = _at_start(starts)
    if how.rtol > 0:
        coarse = max(tol, _ROUGH * how.rtol)
        ends = climb(within_rtol, starts, h, tol=coarse, max_iter=how.max_iter)
    ends = _on(ends, climb(exact, ends.points, h, tol=tol, max_iter=max(1, _left(ends, how))))
    saddles, nudged = _off_saddles(exact, ends, h)
    for _ in range(_ROUNDS):
        if not saddles.size or not _left(ends, how):
            break
        points = ends.points.copy()
        points[saddles] = nudged
        ends = _on(ends, climb(exact, points, h, tol=tol, max_iter=_left(ends, how)))
        saddles, nudged = _off_saddles(exact, ends, h)
    modes, mode_of_end = _united(ends, MEET * h)
    n_left = int(np.sum((ends.steps[modes] > tol * h) | np.isin(modes, saddles)))
    return Modes(
        ends.points[modes],
        ends.steps[modes] / h,
        mode_of_end[ends.of_starts],
        n_left,
        ends.n_iter,
    )


def bins(points: np.ndarray, side: float, least: int) -> np.ndarray:
    """Return the middles (m, d) of the cells that hold at least so many points (n, d)."""
    cells, counts = np.unique(np.round(points / side), axis=0, return_counts=True)
    return (cells[counts >= least] * side).astype(points.dtype)


def nearest(modes: np.ndarray, points: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """Return the number of the mode (k, d) nearest to each of the points (m, d)."""
    return cKDTree(modes).query(points, workers=engine.effective_jobs(n_jobs))[1]


def _at_start(starts: np.ndarray) -> Ends:
    """Return the ends of a climb of no steps."""
    m = len(starts)
    return Ends(starts, np.full(m, -np.inf), np.full(m, np.inf), np.arange(m), 0)


def _on(before: Ends, after: Ends) -> Ends:
    """Return the ends of a climb that went on from the ends of another."""
    return after._replace(
        of_starts=after.of_starts[before.of_starts], n_iter=before.n_iter + after.n_iter
    )


def _left(ends: Ends, how: Climb) -> int:
    """Return the number of steps that may still be taken."""
    return max(0, how.max_iter - ends.n_iter)


def _off_saddles(steps_at: Steps, ends: Ends, h: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which ends are saddles (s,), and points (s, d) beside them, higher or as high.

    The derivative of the step is h^2 times the Hessian of the log density, by differences here.
    """
    k, d = ends.points.shape
    probe = _PROBE[ends.points.dtype]
    offsets = np.concatenate([np.eye(d), -np.eye(d)]) * (probe * h)
    points = ends.points[:, None, :] + offsets.astype(ends.points.dtype)
    _, steps = steps_at(points.reshape(-1, d))
    steps = steps.reshape(k, 2, d, d)
    hessians = (steps[:, 0] - steps[:, 1]) / (2 * probe * h)
    values, vectors = np.linalg.eigh((hessians + hessians.transpose(0, 2, 1)) / 2)
    # Differences are good to about probe^2; what is flatter than that counts as a mode.
    saddles = np.flatnonzero(values[:, -1] > 10 * probe)
    away = (_NUDGE * h) * vectors[saddles, :, -1]
    both = np.stack([ends.points[saddles] + away, ends.points[saddles] - away])
    both = both.astype(ends.points.dtype)
    if not saddles.size:
        return saddles, both[0]
    log_sums = steps_at(both.reshape(-1, d))[0].reshape(2, -1)
    return saddles, np.where((log_sums[0] >= log_sums[1])[:, None], both[0], both[1])


def _united(ends: Ends, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the highest (k,) of the ends within `radius`, by falling density, and who is whose.

    Chains of neighbours count as one.
    """
    m = len(ends.points)
    pairs = cKDTree(ends.points).query_pairs(radius, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(m, m))
    _, place = connected_components(links, directed=False)
    # Equal densities by coordinates: the order must not depend on that of the rows.
    order = np.lexsort((*ends.points.T[::-1], -ends.log_sums))
    _, first, number = np.unique(place[order], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    mode_of_end = np.empty(m, np.intp)
    mode_of_end[order] = rank[number]
    return order[np.sort(first)], mode_of_end
