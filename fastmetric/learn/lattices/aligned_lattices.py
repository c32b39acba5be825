"""Lattices of several segments of points on common cells, on all cores.

The same bits on any number of threads: tasks depend on the data alone, and what they add is added
in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.lattice.segment_lattices import Parts, Rows, Target, spread_twice
from fastmetric.core.lattice.smoothing import STRIP, smooth
from fastmetric.core.lattice.spreading import (
    Span,
    put_in_order,
    spread_points,
    tile_numbers,
)
from fastmetric.core.lattice.stencils import AXES, LANES, Lattice
from fastmetric.learn.lattices.lattice_taps import own_terms
from fastmetric.learn.lattices.point_lattice import Box, PointLattice

_POINTS, _TASKS = 1 << 13, 64  # points of a task at least; tasks of a segment at most
_QUERIES = 1 << 14  # in a task
_STRIP_CELLS = 1 << 16  # smoothed in a task
_ADDED_CELLS = 1 << 18  # of the total, added up in a task
_NONE = np.empty(0, np.int64)


class Sorted(NamedTuple):
    """Rows (n, d) of segments, in the order in which they are spread and read."""

    rows: np.ndarray
    offsets: np.ndarray  # (C + 1,): segment c is offsets[c]:offsets[c + 1], in any order, too
    order: np.ndarray  # (n,), or empty: as they are
    rows_of_tiles: np.ndarray  # (C, k + 1): where rows of tiles along the first axis begin

    def tasks(self) -> list[Rows]:
        """Return the tasks of reading."""
        return [
            Rows(self.rows, self.order, a + part.start, a + part.stop, c)
            for c, (a, b) in enumerate(pairwise(self.offsets.tolist()))
            for part in engine.ranges(b - a, _QUERIES)
        ]


class AlignedLattices:
    """The lattices of segments, each over the cells of its box, and that of all."""

    def __init__(self, frame: PointLattice, boxes: Sequence[Box]) -> None:
        """Take the lattice of all, without points, and the boxes of the segments' rows in it."""
        self.frame, self.n_jobs = frame, frame.n_jobs
        self.d, self.unused = frame.d, AXES - frame.d
        lower, shapes = cells_of(frame, boxes)
        self._lower = np.append(lower, np.zeros((1, AXES), np.int64), axis=0)
        self._shapes = np.append(shapes, [frame.lattice.shape], axis=0)
        sizes = self._shapes.prod(axis=1)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        steps = np.stack([self._shapes[:, 1] * self._shapes[:, 2], self._shapes[:, 2]], axis=1)
        self._corners = (self._lower[:, :2] * steps).sum(axis=1) + self._lower[:, 2]
        room = np.array([frame.plan.width, frame.plan.width, _vectors(frame)])
        upper = self._lower + self._shapes - room
        self.parts = Parts(self._starts[:-1] - self._corners, steps, self._lower, upper)

    @property
    def own(self) -> np.ndarray:
        """Return the polynomials of what a point adds to itself."""
        return own_terms(self.frame.plan, self.frame.rtol)

    def in_order(self, rows: np.ndarray, offsets: np.ndarray) -> Sorted:
        """Return rows (n, d) of the segments in an order in which neighbours have near cells."""
        offsets = np.asarray(offsets, np.int64)
        if self.frame.resident:
            return Sorted(rows, offsets, _NONE, _NONE)
        tiles = self.frame.tiles
        counts = tiles.counts
        numbers, order = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
        parts = self._ranges(offsets)

        def count(part: tuple[int, int, int]) -> np.ndarray:
            return tile_numbers(rows, tiles, part[1], part[2], numbers)

        found = np.array(list(engine.run(count, parts, n_jobs=self.n_jobs)))
        starts, row_starts = np.empty_like(found), []
        per_row = found.shape[1] // counts[self.unused]
        for c, (a, b) in enumerate(pairwise(offsets)):
            mine = np.array([part[0] == c for part in parts])
            there = found[mine].T
            ends = a + there.ravel().cumsum()
            begins = (ends - there.ravel()).reshape(there.shape)
            starts[mine] = begins.T
            first = begins[::per_row, 0] if len(begins.T) else np.full(counts[self.unused], a)
            row_starts.append(np.append(first, b))

        def place(k: int) -> None:
            put_in_order(numbers, starts[k], parts[k][1], parts[k][2], order)

        engine.for_each(place, range(len(parts)), n_jobs=self.n_jobs)
        return Sorted(rows, offsets, order, np.array(row_starts))

    def _ranges(self, offsets: np.ndarray) -> list[tuple[int, int, int]]:
        """Return segments with ranges of their rows."""
        return [
            (c, a + part.start, a + part.stop)
            for c, (a, b) in enumerate(pairwise(offsets.tolist()))
            for part in engine.ranges(b - a, max(_POINTS, -(-(b - a) // _TASKS)))
        ]

    def _tasks(self, points: Sorted) -> list[tuple[Rows, int, int]]:
        """Return the tasks of spreading, with the cells that they reach along the first axis."""
        rows, order, side = points.rows, points.order, self.frame.side
        # No tap is outside of the box of its segment, on the lattice of all, too.
        begins = self._lower[:, self.unused].tolist()
        ends = (self._lower + self._shapes)[:, self.unused].tolist()
        if not order.size:
            return [
                (Rows(rows, order, a, b, c), begins[c], ends[c])
                for c, a, b in self._ranges(points.offsets)
            ]
        tasks, width = [], self.frame.plan.width
        for c, starts in enumerate(points.rows_of_tiles):
            least, begin = max(_POINTS, -(-(starts[-1] - starts[0]) // _TASKS)), 0
            for t in range(len(starts) - 1):
                if starts[t + 1] - starts[begin] >= least or t == len(starts) - 2:
                    # Rounding may put a point into a tile next to its own.
                    low, high = begin * side - width, (t + 1) * side + width + LANES
                    if starts[t + 1] > starts[begin]:
                        some = Rows(rows, order, int(starts[begin]), int(starts[t + 1]), c)
                        tasks.append((some, max(low, begins[c]), min(high, ends[c])))
                    begin = t + 1
        return tasks

    def _target(self, c: int, low: int, high: int) -> Target:
        """Return the cells of a lattice between two along the first axis of the data."""
        shape, lower = self._shapes[c], self._lower[c]
        axis, count = self.unused, self._shapes[c][self.unused]
        begin, end = (min(max(0, e - lower[axis]), count) for e in (low, high))
        stride = int(shape[axis + 1 :].prod())
        lattice = Lattice(
            (int(shape[0]), int(shape[1]), int(shape[2])),
            self.frame.lattice.origin,
            self.frame.lattice.inverse_spacing,
        )
        first = int(self._corners[c] + begin * stride)
        return Target(lattice, first, int((end - begin) * stride))

    def _slice(self, c: int, target: Target) -> slice:
        """Return where the cells of a target are among those of all lattices."""
        begin = int(self._starts[c] - self._corners[c] + target.first_cell)
        return slice(begin, begin + target.cells)

    def spread(self, points: Sorted, weights: np.ndarray, label: str | None = None) -> np.ndarray:
        """Return the cells of all lattices, points with the weights (C,) of their segments."""
        values, tasks = self._zeros(), self._tasks(points)
        stencil = self.frame.taps.stencil

        def task(item: tuple[Rows, int, int]) -> np.ndarray:
            some, target = item[0], self._target(item[0].segment, *item[1:])
            span = Span(some.first, some.last, target.first_cell, target.first_cell + target.cells)
            weight = weights[some.segment : some.segment + 1]
            return spread_points(some.rows, weight, some.order, span, target.lattice, stencil)

        for item, part in zip(tasks, self._run(task, tasks, label), strict=True):
            c = item[0].segment
            target = self._target(c, *item[1:])
            values[self._slice(c, target)] += part[: target.cells]
        # Before they are smoothed: smoothing reaches beyond the box of a segment.
        self._add_up(values, to_total=True)
        self._smooth(values)
        return values

    def spread_adjoint(
        self, points: Sorted, weights: np.ndarray, label: str | None = None
    ) -> np.ndarray:
        """Return the cells of all lattices, those of each segment with those of the total added.

        `weights` (2, n) are those on the lattice of a point's segment, and on that of all.
        """
        values, tasks = self._zeros(), self._tasks(points)
        total, stencil = len(self._shapes) - 1, self.frame.taps.stencil

        def task(item: tuple[Rows, int, int]) -> tuple[np.ndarray, np.ndarray]:
            some, *ends = item
            mine, whole = self._target(some.segment, *ends), self._target(total, *ends)
            return spread_twice(some, weights, mine, whole, stencil)

        for item, found in zip(tasks, self._run(task, tasks, label), strict=True):
            for c, part in zip((item[0].segment, total), found, strict=True):
                target = self._target(c, *item[1:])
                values[self._slice(c, target)] += part[: target.cells]
        self._smooth(values)
        self._add_up(values, to_total=False)
        return values

    def _zeros(self) -> np.ndarray:
        """Return the cells of all lattices, and room for a vector behind them."""
        return np.zeros(self._starts[-1] + 2 * LANES)

    def _run(self, task: Callable, items: Sequence, label: str | None):
        """Return the results of a task, in order."""
        return engine.run(task, items, n_jobs=self.n_jobs, label=label)

    def _view(self, values: np.ndarray, c: int) -> np.ndarray:
        """Return the cells of a lattice, (n0, n1, n2)."""
        return values[self._starts[c] : self._starts[c + 1]].reshape(self._shapes[c])

    def _smooth(self, values: np.ndarray) -> None:
        """Convolve lattices with the middle kernel along every axis, in place."""
        for axis in range(AXES - 1, self.unused - 1, -1):
            strips: list[list[tuple[np.ndarray, slice]]] = []
            cells = _STRIP_CELLS  # of the last task, full at first
            for c in range(len(self._shapes)):
                n0, n1, n2 = self._shapes[c].tolist()
                shape = ((1, n0, n1 * n2), (n0, n1, n2), (n0 * n1, n2, 1))[axis]
                view = self._view(values, c).reshape(shape)
                step = max(1, _STRIP_CELLS // (shape[1] * min(STRIP, shape[2])))
                count = shape[0] * -(-shape[2] // STRIP)
                for part in engine.ranges(count, step):
                    # Small lattices share a task.
                    if cells >= _STRIP_CELLS:
                        strips.append([])
                        cells = 0
                    strips[-1].append((view, part))
                    cells += shape[1] * min(STRIP, shape[2]) * (part.stop - part.start)

            def task(items: list[tuple[np.ndarray, slice]]) -> None:
                for view, part in items:
                    smooth(view, self.frame.taps.middle, part.start, part.stop)

            engine.for_each(task, strips, n_jobs=self.n_jobs)

    def _add_up(self, values: np.ndarray, *, to_total: bool) -> None:
        """Add the lattices of the segments to the total, or the total to each of them."""
        total, axis = len(self._shapes) - 1, self.unused
        whole, n0 = self._view(values, total), int(self._shapes[total, axis])
        stride = max(1, whole.size // n0)

        def task(part: slice) -> None:
            for c in range(total):
                low, high = self._lower[c], self._lower[c] + self._shapes[c]
                begin, end = max(part.start, low[axis]), min(part.stop, high[axis])
                if begin >= end:
                    continue
                cut = [slice(int(a), int(b)) for a, b in zip(low, high, strict=True)]
                cut[axis] = slice(int(begin), int(end))
                here = [slice(0, int(s)) for s in self._shapes[c]]
                here[axis] = slice(int(begin - low[axis]), int(end - low[axis]))
                mine, of_all = self._view(values, c)[tuple(here)], whole[tuple(cut)]
                if to_total:
                    of_all += mine
                else:
                    mine += of_all

        parts = engine.ranges(n0, max(1, _ADDED_CELLS // stride))
        engine.for_each(task, parts, n_jobs=self.n_jobs)


def cells_of(frame: PointLattice, boxes: Sequence[Box]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first cells (C, AXES) and the shapes (C, AXES) of lattices over boxes."""
    width, unused = frame.plan.width, AXES - frame.d
    whole = np.array(frame.lattice.shape)
    first, last = np.zeros((len(boxes), AXES), np.int64), np.zeros((len(boxes), AXES), np.int64)
    for c, box in enumerate(boxes):
        for ends, cells, beside in ((box.lower, first, -1), (box.upper, last, 1)):
            places = (ends - frame.lattice.origin[unused:]) * frame.lattice.inverse_spacing
            # One more cell for the rounding of places.
            cells[c, unused:] = np.floor(places).astype(np.int64) - (width // 2 - 1) + beside
    room = np.where(np.arange(AXES) < unused, 1, width)
    room[-1] = _vectors(frame)
    first = np.maximum(first, 0)
    return first, np.minimum(last + room, whole) - first


def _vectors(frame: PointLattice) -> int:
    """Return the taps of a point along the last axis, in whole vectors."""
    return LANES * math.ceil(frame.plan.width / LANES)
