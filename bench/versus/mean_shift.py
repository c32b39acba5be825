"""MeanShift against scikit-learn's: the cases of `versus meanshift`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import MeanShift as SklearnMeanShift
from sklearn.metrics import adjusted_rand_score

from bench.shared.report import Row
from bench.shared.setup import clock, take_turns
from fastmetric import MeanShift

_H = 0.5  # the Gaussian's deviation
_RADIUS = 2 * _H  # of a disc whose deviation along each axis is that
_FEW = 2_000  # rows that suffice to have all code compiled


class Plan(NamedTuple):
    """How large, and how often."""

    all_rows: tuple[int, ...]  # of which every one is moved, in both libraries
    seeded: tuple[int, ...]  # rows where scikit-learn starts from cells
    alone: tuple[int, ...]  # rows that only ours moves, all of them
    repeats: int


FULL = Plan((2_000, 5_000), (5_000, 20_000, 100_000), (25_000, 50_000, 100_000, 200_000), 2)
QUICK = Plan((1_000,), (5_000,), (20_000,), 2)


def four_clusters(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n rows of four normal clusters in the plane, and their clusters."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    centers = np.array([[0.0, 0.0], [4.0, 1.0], [-3.0, 6.0], [5.0, -5.0]])
    spread = np.array([1.0, 0.5, 1.5, 0.7])
    return centers[y] + spread[y, None] * rng.standard_normal((n, 2)), y


def every_row(plan: Plan) -> Iterator[Row]:
    """All rows are moved to their modes, in both."""
    for n in plan.all_rows:
        yield _row("every row", n, plan, bin_seeding=False)


def seeded(plan: Plan) -> Iterator[Row]:
    """Both start from cells that hold rows."""
    for n in plan.seeded:
        yield _row("seeded", n, plan, bin_seeding=True)


def growth(plan: Plan) -> Iterator[Row]:
    """Ours alone, every row moved to its mode; the power of n from size to size."""
    before: tuple[int, float] | None = None
    for n in plan.alone:
        X, y = four_clusters(n)
        compiling = clock(partial(MeanShift(bandwidth=_H).fit, X[:_FEW])).best
        timing = take_turns({"ours": partial(MeanShift(bandwidth=_H).fit, X)}, plan.repeats)["ours"]
        row = Row("growth", _sizes(n), our_seconds=timing.best, compile_seconds=compiling)
        row.note = f"no peer; {_found(timing.result, y)}"
        if before:
            power = math.log(timing.best / before[1]) / math.log(n / before[0])
            row.note += f"; grows as n^{power:.2f}"
        before = n, timing.best
        yield row


def _row(case: str, n: int, plan: Plan, bin_seeding: bool) -> Row:
    """Return the times of both, and what both found."""
    X, y = four_clusters(n)
    ours = MeanShift(bandwidth=_H, bin_seeding=bin_seeding)
    # One process: at these sizes joblib's cost it more than they save.
    peer = SklearnMeanShift(bandwidth=_RADIUS, bin_seeding=bin_seeding)
    compiling = clock(partial(MeanShift(**ours.get_params()).fit, X[:_FEW])).best
    timings = take_turns({"peer": partial(peer.fit, X), "ours": partial(ours.fit, X)}, plan.repeats)
    note = f"scikit-learn: {_found(peer, y)}; ours: {_found(ours, y)}"
    return Row(
        case,
        _sizes(n),
        peer_seconds=timings["peer"].best,
        our_seconds=timings["ours"].best,
        compile_seconds=compiling,
        note=note,
        details={name: timing.seconds for name, timing in timings.items()},
    )


def _sizes(n: int) -> str:
    """Return the shape of the data for the table."""
    return f"n={n:,} d=2 float64"


def _found(model: Any, y: np.ndarray) -> str:
    """Return how many clusters there are, and how far they agree with the true ones."""
    score = adjusted_rand_score(y, model.labels_)
    return f"{len(model.cluster_centers_)} clusters, adjusted Rand index {score:.3f}"


CASES = {"every row": every_row, "seeded": seeded, "growth": growth}
