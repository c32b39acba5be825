"""Bounds of the exact class sums of the points given, from computed sums [SUM-10]."""

from __future__ import annotations

import numpy as np

from fastmetric.core.error_bounds import SLACK, UNDERFLOWED_PAIRS, sum_disturbance
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.learn.pair_sums.problem import ClassSums, PairProblem
from fastmetric.learn.tree_search import nearest_rows


def certified_ends(
    problem: PairProblem, sums: ClassSums, moved: np.ndarray, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the log sums over the own segment and over the others, (2, m) each.

    `moved` (m,) is how far a query and a point, added up, are from the rows that count.
    """
    eps, segments = float(np.finfo(problem.points.dtype).eps), problem.segments
    asked, exact = problem.asked(), sums.own_ends is None
    log_least = float(np.log(problem.weights.min()))
    off = sum_disturbance((problem.n, problem.dims), eps, moved, log_least, exact)
    sizes, y = segments.sizes, asked.segments
    totals = problem.weights[segments.offsets[:-1]] * sizes
    log_total = np.logaddexp(sums.own, sums.other)
    # Below by more than the rounding of a log: certainly one that was summed again.
    shifted = log_total < np.log(UNDERFLOWED_PAIRS[problem.points.dtype]) * (1 + SLACK)
    pairs = (
        (sums.own, sums.own_ends, totals[y], sizes[y]),
        (sums.other, sums.other_ends, *np.full((len(y), 2), (totals.sum(), problem.n)).T),
    )
    own, other = (
        off.widened(
            problem.code,
            np.stack([logs] * 2) if ends is None else ends,
            (np.log(weight), np.log(number)),
            shifted,
        )
        for logs, ends, weight, number in pairs
    )
    empty = np.flatnonzero(np.isneginf(sums.own) & np.isneginf(sums.other))
    if problem.code != GAUSSIAN and len(empty):
        # Most rows beyond the cutoff of all others are beyond that of the exact rows, too.
        rows = asked.rows[empty]
        near = nearest_rows(problem.points, rows, 2, n_jobs)
        gaps = problem.points[near].astype(np.float64) - rows[:, None]
        least = np.partition(np.einsum("ijk,ijk->ij", gaps, gaps), 1, axis=1)[:, 1]
        beyond = empty[off.beyond_cutoff(least, empty)]
        own[:, beyond] = other[:, beyond] = -np.inf
    return own, other
