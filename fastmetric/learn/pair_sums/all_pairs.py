"""Class sums and their scatter over all pairs: of chosen rows, or of all rows at once.

Both ways offer the same two passes: `log_sums`, the logs of a row's sums of weighted kernels
over its own class and over the others, and `gradient`, U of [CCK-6].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs import dense_pairs
from fastmetric.core.pairs.pair_tiles import (
    Points,
    add_gradient,
    empty_gradient,
    gradient_rows,
    make_points,
)
from fastmetric.core.pairs.partition import row_blocks, symmetric_blocks

# A sum of unshifted kernels below this has lost digits to underflow: such a row is faint,
# and done relative to its nearest neighbour.
_UNDERFLOWED = {np.dtype(np.float64): 1e-280, np.dtype(np.float32): 1e-28}

_PROBES = 48  # rows that are looked at before the way is chosen
_THINNED = 1000  # points that they are looked at against, at first

Part = tuple[np.ndarray, ...]


class Classes(NamedTuple):
    """Where the classes lie among rows that are sorted by class."""

    offsets: np.ndarray  # (C + 1,): class c is offsets[c]:offsets[c + 1]
    starts: np.ndarray  # (n,): the own class of row i is starts[i]:stops[i]
    stops: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each class (C,)."""
        return np.diff(self.offsets)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the class of some rows."""
        return np.searchsorted(self.offsets, rows, side="right") - 1


class ClassSums(NamedTuple):
    """Logs of the sums (m,) over the own class and over the others, and certified bounds."""

    own: np.ndarray
    other: np.ndarray
    own_ends: np.ndarray | None = None  # (2, m), lower and upper; None: exact but for rounding
    other_ends: np.ndarray | None = None


class RowPairs:
    """Chosen rows against all points, each row relative to its nearest one: at any scale."""

    name, pair_share = "all pairs", 1.0  # of the pairs that are visited

    def __init__(
        self,
        points: Points,
        classes: Classes,
        chosen: np.ndarray,
        code: int,
        n_jobs: int | None = None,
    ) -> None:
        """Take the points sorted by class, and the distinct rows `chosen` (m,)."""
        self.points, self.chosen, self.code, self.n_jobs = points, chosen, code, n_jobs
        d = points.panels.shape[1]
        rows = points.rows[chosen, : points.width]
        self._query = make_points(rows, products=points.products, near=d)
        self._where = dense_pairs.QuerySegments(
            classes.starts[chosen], classes.stops[chosen], chosen
        )
        self._blocks = row_blocks(len(chosen), points.size, d)

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the sums of the chosen rows."""

        def sums(block: dense_pairs.Block) -> Part:
            return dense_pairs.row_log_sums(self._query, self.points, self._where, block, self.code)

        log_own, log_other = np.full((2, len(self.chosen)), -np.inf)
        for block, (own, other) in _run(sums, self._blocks, self.n_jobs, label):
            rows = slice(block.i0, block.i1)
            log_own[rows] = np.logaddexp(log_own[rows], own)
            log_other[rows] = np.logaddexp(log_other[rows], other)
        return ClassSums(log_own, log_other)

    def gradient(
        self,
        log_totals: np.ndarray,
        own_weights: np.ndarray,
        other_weights: np.ndarray,
        label: str | None = None,
    ) -> np.ndarray:
        """Return U (n, d): row i pulls with its pull over exp(log_totals[i])."""
        dtype = self.points.rows.dtype
        rows = [array.astype(dtype) for array in (log_totals, own_weights, other_weights)]

        def gradient(block: dense_pairs.Block) -> Part:
            return dense_pairs.row_gradient(
                self._query, self.points, self._where, *rows, block, self.code
            )

        pulls = empty_gradient(self.points.size, self.points)
        for block, (to_i, to_j) in _run(gradient, self._blocks, self.n_jobs, label):
            add_gradient(pulls, to_i, self.chosen[block.i0 : block.i1])
            add_gradient(pulls, to_j, slice(block.j0, block.j1))
        return gradient_rows(pulls, self.points)


class SymmetricPairs:
    """All rows against each other, every unordered pair once per pass; faint rows apart."""

    name, pair_share = "all pairs", 1.0

    def __init__(
        self, points: Points, classes: Classes, code: int, n_jobs: int | None = None
    ) -> None:
        """Take the points sorted by class."""
        self.points, self.classes, self.code, self.n_jobs = points, classes, code, n_jobs
        self._blocks = symmetric_blocks(points.size, points.panels.shape[1])
        self._underflowed: RowPairs | None = None

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the sums of all rows."""
        own, other = self._plain_sums(label)
        with np.errstate(divide="ignore"):
            sums = ClassSums(np.log(own), np.log(other))
        underflowed = np.flatnonzero(own + other < _UNDERFLOWED[self.points.rows.dtype])
        if underflowed.size and self.code == GAUSSIAN:
            self._underflowed = RowPairs(
                self.points, self.classes, underflowed, self.code, self.n_jobs
            )
            sums.own[underflowed], sums.other[underflowed], *_ = self._underflowed.log_sums(label)
        return sums

    def _plain_sums(self, label: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the unshifted sums of all rows over their own class and over the others."""
        _, starts, stops = self.classes

        def sums(block: dense_pairs.Block) -> Part:
            return dense_pairs.symmetric_sums(self.points, starts, stops, block, self.code)

        own, other = np.zeros((2, self.points.size))
        for block, (own_i, other_i, own_j, other_j) in _run(sums, self._blocks, self.n_jobs, label):
            own[block.i0 : block.i1] += own_i
            other[block.i0 : block.i1] += other_i
            own[block.j0 : block.j1] += own_j
            other[block.j0 : block.j1] += other_j
        return own, other

    def gradient(
        self,
        log_totals: np.ndarray,
        own_weights: np.ndarray,
        other_weights: np.ndarray,
        label: str | None = None,
    ) -> np.ndarray:
        """Return U (n, d); see `RowPairs.gradient`. After `log_sums`."""
        _, starts, stops = self.classes
        bright = np.ones(self.points.size, bool)
        if self._underflowed is not None:
            bright[self._underflowed.chosen] = False  # these pull nothing here
        with np.errstate(over="ignore"):
            strength = np.exp(-log_totals, where=bright, out=np.zeros(len(bright)))
        dtype = self.points.rows.dtype
        own, other = (
            (own_weights * strength).astype(dtype),
            (other_weights * strength).astype(dtype),
        )

        def gradient(block: dense_pairs.Block) -> Part:
            return dense_pairs.symmetric_gradient(
                self.points, starts, stops, own, other, block, self.code
            )

        pulls = empty_gradient(self.points.size, self.points)
        for block, (to_i, to_j) in _run(gradient, self._blocks, self.n_jobs, label):
            add_gradient(pulls, to_i, slice(block.i0, block.i1))
            add_gradient(pulls, to_j, slice(block.j0, block.j1))
        U = gradient_rows(pulls, self.points)
        if self._underflowed is not None:
            underflowed = self._underflowed.chosen
            arrays = log_totals[underflowed], own_weights[underflowed], other_weights[underflowed]
            U += self._underflowed.gradient(*arrays, label)
        return U


def mostly_underflowed(points: Points, n_jobs: int | None = None) -> bool:
    """Return whether most of a few rows are faint: then symmetric blocks are a detour.

    They are looked at against a part of the points first: what these add up to is a lower bound.
    """
    log_faint = np.log(_UNDERFLOWED[points.rows.dtype])
    step = max(1, points.size // _THINNED)
    if step > 1 and _median_log_sum(points, step, n_jobs) >= log_faint:
        return False
    return _median_log_sum(points, 1, n_jobs) < log_faint


def _median_log_sum(points: Points, step: int, n_jobs: int | None) -> float:
    """Return the median of a few rows' log sums over every `step`-th point."""
    d = points.panels.shape[1]
    chosen = np.arange(0, points.size, max(1, points.size // _PROBES))
    part = np.arange(0, points.size, step)
    thinned = points if step == 1 else make_points(points.rows[part, :d], points.weights[part])
    query = make_points(points.rows[chosen, :d], products=thinned.products)
    # One class holds them all.
    ends = np.zeros(len(chosen), np.intp), np.full(len(chosen), len(part))
    where = dense_pairs.QuerySegments(*ends, np.where(chosen % step == 0, chosen // step, -1))
    logs = np.full(len(chosen), -np.inf)

    def sums(block: dense_pairs.Block) -> Part:
        return dense_pairs.row_log_sums(query, thinned, where, block, GAUSSIAN)

    for block, (own, _) in _run(sums, row_blocks(len(chosen), len(part), d), n_jobs, None):
        rows = slice(block.i0, block.i1)
        logs[rows] = np.logaddexp(logs[rows], own)
    return float(np.median(logs))


def _run(
    task: Callable[[dense_pairs.Block], Part],
    blocks: Sequence[dense_pairs.Block],
    n_jobs: int | None,
    label: str | None,
) -> Iterator[tuple[dense_pairs.Block, Any]]:
    """Yield every block with its partial result, in order."""
    return zip(blocks, engine.run(task, blocks, n_jobs=n_jobs, label=label), strict=True)
