"""The modes of a kernel density: found with certified sums, verified with exact ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from fastmetric import engine
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.modes.trajectories import MEET, Ends, Steps, follow

_ROUGH = 10  # times rtol: a shorter step by approximate sums is noise
_PROBE = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 1e-2}  # bandwidths, for differences
# Of sums by a lattice: its steps are smooth enough to find saddles before any exact sum is taken.
_SMOOTH, _SMOOTH_PROBE = 1e-5, 1e-2
_NUDGE = 0.1  # bandwidths: the length of a step away from a saddle
_ROUNDS = 10  # of such steps
_BLOCK, _SUBSPACE = 8, 4  # directions of the subspace iteration, and its rounds
_COORDINATES = 4_000_000  # of points that are evaluated at once


class SearchSettings(NamedTuple):
    """The tolerances of a search, and its number of steps."""

    rtol: float  # of the sums of the first phase
    tol: float  # of h |grad log p| at the end
    max_iter: int
    label: str | None = None  # of a progress bar


class Modes(NamedTuple):
    """Modes by decreasing density, and the mode of each start."""

    points: np.ndarray  # (k, d)
    gradients: np.ndarray  # (k,): h |grad log p| by exact sums
    of_starts: np.ndarray  # (m,)
    n_left: int  # of them that did not converge: the gradient is not small, or the end is a saddle
    n_iter: int


def find_modes(sums: KernelSums, starts: np.ndarray, how: SearchSettings) -> Modes:
    """Return the modes to which mean shift converges from `starts` (m, d).

    Sums are within `rtol` first, then exact; a saddle is left along its direction of largest
    curvature. Ends that coincide are one mode.
    """
    h, dtype = sums.bandwidth, sums.X.dtype
    # A step is a difference of coordinates: below their rounding it is noise.
    rounding = 8 * float(np.finfo(dtype).eps) * float(np.abs(sums.X).max()) / h
    tol = max(how.tol, rounding)

    def exact(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums.mean_shift_steps(points, how.label)

    ends = _at_start(starts)
    if how.rtol > 0:
        way = sums.way_of_steps(starts, how.rtol)

        def within_rtol(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return way.at(points).mean_shift(how.label)

        coarse = max(tol, _ROUGH * how.rtol)
        ends = follow(within_rtol, starts, h, coarse, how.max_iter)
        if way.rtol <= _SMOOTH and _left(ends, how):
            near = how._replace(tol=max(tol, _ROUGH * way.rtol))
            ends = _on(ends, follow(within_rtol, ends.points, h, near.tol, _left(ends, how)))
            noise = _Noise(rounding, max(_SMOOTH_PROBE, _PROBE[dtype]))
            ends, _ = _past_saddles(within_rtol, ends, h, near, noise)
    ends = _on(ends, follow(exact, ends.points, h, tol, max(1, _left(ends, how))))
    noise = _Noise(rounding, _PROBE[dtype])
    ends, saddles = _past_saddles(exact, ends, h, how._replace(tol=tol), noise)
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
    """Return the index of the mode (k, d) nearest to each of the points (m, d)."""
    return cKDTree(modes).query(points, workers=engine.effective_jobs(n_jobs))[1]


def _at_start(starts: np.ndarray) -> Ends:
    """Return the ends of trajectories of no steps."""
    m = len(starts)
    return Ends(starts, np.full(m, -np.inf), np.full(m, np.inf), np.arange(m), 0)


def _on(before: Ends, after: Ends) -> Ends:
    """Return the ends `after`, whose trajectories continue those of `before`."""
    return after._replace(
        of_starts=after.of_starts[before.of_starts], n_iter=before.n_iter + after.n_iter
    )


def _left(ends: Ends, how: SearchSettings) -> int:
    """Return the number of steps that may still be taken."""
    return max(0, how.max_iter - ends.n_iter)


class _Noise(NamedTuple):
    """What differences of steps are off by, and over which distance they are taken."""

    rounding: float  # of coordinates, in bandwidths
    probe: float  # bandwidths


def _past_saddles(
    steps_at: Steps, ends: Ends, h: float, how: SearchSettings, noise: _Noise
) -> tuple[Ends, np.ndarray]:
    """Return ends beyond the saddles among `ends`, and which of them are saddles still."""
    saddles, nudged = _off_saddles(steps_at, ends, h, noise)
    for _ in range(_ROUNDS):
        if not saddles.size or not _left(ends, how):
            break
        points = ends.points.copy()
        points[saddles] = nudged
        ends = _on(ends, follow(steps_at, points, h, how.tol, _left(ends, how)))
        saddles, nudged = _off_saddles(steps_at, ends, h, noise)
    return ends, saddles


def _off_saddles(
    steps_at: Steps, ends: Ends, h: float, noise: _Noise
) -> tuple[np.ndarray, np.ndarray]:
    """Return which ends are saddles (s,), and points (s, d) beside them, on the higher side."""
    k, d = ends.points.shape
    curvatures, directions = np.empty(k), np.empty((k, d))
    size = max(1, _COORDINATES // (2 * min(d, _BLOCK) * d))
    for part in (slice(start, start + size) for start in range(0, k, size)):
        curvatures[part], directions[part] = _steepest(steps_at, ends.points[part], h, noise.probe)
    # An end whose curvature differences cannot distinguish from 0 counts as a mode.
    least = max(10 * noise.probe, 4 * noise.rounding / noise.probe)
    saddles = np.flatnonzero(curvatures > least)
    away = (_NUDGE * h) * directions[saddles]
    both = np.stack([ends.points[saddles] + away, ends.points[saddles] - away])
    both = both.astype(ends.points.dtype)
    if not saddles.size:
        return saddles, both[0]
    log_sums = steps_at(both.reshape(-1, d))[0].reshape(2, -1)
    return saddles, np.where((log_sums[0] >= log_sums[1])[:, None], both[0], both[1])


def _steepest(
    steps_at: Steps, points: np.ndarray, h: float, probe: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest curvature (m,) of the log density at points (m, d), and its direction.

    The curvature, in units of 1/h^2, is the largest eigenvalue of the derivative of the step, from
    differences along all axes; in many dimensions, from a few rounds of subspace iteration.
    """
    m, d = points.shape
    b = min(d, _BLOCK)
    start = np.eye(d) if b == d else np.random.default_rng(0).standard_normal((d, b))
    axes = np.broadcast_to(np.linalg.qr(start)[0], (m, d, b))
    for _ in range(1 if b == d else _SUBSPACE):
        offsets = (probe * h) * axes.transpose(0, 2, 1)
        both = np.stack([points[:, None] + offsets, points[:, None] - offsets])
        _, steps = steps_at(both.reshape(-1, d).astype(points.dtype))
        ahead, behind = steps.reshape(2, m, b, d).transpose(0, 1, 3, 2)
        bent = (ahead - behind) / (2 * probe * h)
        small = axes.transpose(0, 2, 1) @ bent
        values, vectors = np.linalg.eigh((small + small.transpose(0, 2, 1)) / 2)
        directions = (axes @ vectors[:, :, -1:])[:, :, 0]
        axes = np.linalg.qr(axes + bent)[0]  # the derivative plus 1 has no negative eigenvalue
    return values[:, -1], directions


def _united(ends: Ends, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Merge ends within `radius`: return the highest ends (k,) and the group of each end (m,).

    Groups are connected components, by decreasing density.
    """
    m = len(ends.points)
    pairs = cKDTree(ends.points).query_pairs(radius, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(m, m))
    _, place = connected_components(links, directed=False)
    # Coordinates break ties of densities: the order must not depend on that of the rows.
    order = np.lexsort((*ends.points.T[::-1], -ends.log_sums))
    _, first, number = np.unique(place[order], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    mode_of_end = np.empty(m, np.intp)
    mode_of_end[order] = rank[number]
    return order[np.sort(first)], mode_of_end
