"""Points on a lattice, on all cores: spread, smoothed, and read off at queries.

The same bits on any number of threads: tasks depend on the data alone, and lattices of their own
are added in the order of the tasks.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.lattice.moments import TERMS, part_moments
from fastmetric.core.lattice.reading import Margins, Readers, intervals, read_slopes, read_values
from fastmetric.core.lattice.smoothing import STRIP, smooth
from fastmetric.core.lattice.spreading import (
    Span,
    Tiles,
    put_in_order,
    spread_points,
    tile_numbers,
)
from fastmetric.core.lattice.stencils import AXES, LANES, Lattice
from fastmetric.learn.lattices.lattice_plan import Plan
from fastmetric.learn.lattices.lattice_taps import Moments, moments, taps

_RESIDENT = 1 << 17  # cells that stay in a core's cache: points and queries come in any order
_POINTS, _TASKS = 1 << 15, 64  # points of a task at least; tasks at most
_QUERIES = 1 << 14  # in a task
_CROWDED = 200  # points a cell, from which on moments of its parts pay
_MOMENTS, _MOMENT_TASKS = 1 << 18, 16  # numbers that stay in a core's cache; tasks at most
_TILE = {1: 8192, 2: 64, 3: 16}  # cells, the side of a tile, by dimension
_STRIP_CELLS = 1 << 16  # smoothed in a task
_NONE = np.empty(0, np.int64)
NO_WEIGHTS = np.empty(0)
_UNIT = 2.0**-53
_ROUNDED = 64.0  # times the rounding of the largest coordinate is less than a cell
_RADIUS = 12.0  # bandwidths: beyond it a kernel is 5e-32, and moving it counts as losing it


class Box(NamedTuple):
    """The smallest and largest coordinates (d,) of some rows; float64."""

    lower: np.ndarray
    upper: np.ndarray


def box_of(rows: np.ndarray, n_jobs: int | None = None) -> Box:
    """Return the box of rows (n, d)."""
    parts = engine.ranges(len(rows), 1 << 18)

    def ends(part: slice) -> tuple[list[float], list[float]]:
        # Column by column: an extremum along the first of two axes takes ten times as long.
        columns = rows[part].T
        return [one.min() for one in columns], [one.max() for one in columns]

    found = list(engine.run(ends, parts, n_jobs=n_jobs))
    lower, upper = (np.array(side, np.float64) for side in zip(*found, strict=True))
    return Box(lower.min(axis=0), upper.max(axis=0))


def shape_of(plan: Plan, box: Box, h: float) -> tuple[float, ...]:
    """Return how many cells a lattice for rows in a box has along each axis; maybe infinitely.

    Infinitely many, too, if the place of its origin would be rounded by a part of a cell.
    """
    spacing = plan.spacing * h
    farthest = max(-box.lower.min(), box.upper.max())
    if not spacing > _ROUNDED * _UNIT * farthest:
        return (math.inf,) * len(box.lower)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        cells = (box.upper - box.lower) / spacing + plan.width + 2
    cells[-1] += LANES * -(-plan.width // LANES)
    return tuple(float(c) if np.isfinite(c) else math.inf for c in cells)


class Sorting(NamedTuple):
    """An order of rows by the tile that they lie in; empty, if any order serves."""

    order: np.ndarray  # (n,) or empty
    starts: np.ndarray  # (rows of tiles + 1,): where those along the first axis begin


class PointLattice:
    """A lattice that covers a box, for a plan and a bandwidth."""

    def __init__(self, plan: Plan, rtol: float, box: Box, h: float, n_jobs: int | None) -> None:
        """Take the box of all points and queries (d,), of at most 2^31 cells."""
        self.plan, self.rtol, self.n_jobs, self.d = plan, rtol, n_jobs, len(box.lower)
        self.taps = taps(plan, rtol)
        cells = [1] * (AXES - self.d) + [int(c) for c in shape_of(plan, box, h)]
        spacing = plan.spacing * h
        origin = np.zeros(AXES)
        origin[AXES - self.d :] = box.lower - plan.width / 2 * spacing
        self.spacing = spacing
        self.lattice = Lattice((cells[0], cells[1], cells[2]), origin, 1 / spacing)
        self.size = math.prod(cells)

    @property
    def resident(self) -> bool:
        """Return whether the lattice stays in a core's cache, so that any order of rows serves."""
        return self.size <= _RESIDENT

    @property
    def side(self) -> int:
        """Return how many cells long a tile is along every axis."""
        return _TILE[self.d]

    @cached_property
    def tiles(self) -> Tiles:
        """Return the tiles that points are sorted by."""
        side, unused = self.side, AXES - self.d
        counts = [-(-c // side) if k >= unused else 1 for k, c in enumerate(self.lattice.shape)]
        scale = self.lattice.inverse_spacing / side  # exact: sides are powers of two
        return Tiles(self.lattice, scale, (counts[0], counts[1], counts[2]))

    def sorting(self, rows: np.ndarray) -> Sorting:
        """Return the order in which rows (n, d) are spread or read."""
        if self.size <= _RESIDENT:
            return Sorting(_NONE, _NONE)
        tiles, n = self.tiles, len(rows)
        numbers, order = np.empty(n, np.int32), np.empty(n, np.int64)
        parts = engine.ranges(n, max(_POINTS, -(-n // _TASKS)))

        def count(part: slice) -> np.ndarray:
            return tile_numbers(rows, tiles, part.start, part.stop, numbers)

        found = np.array(list(engine.run(count, parts, n_jobs=self.n_jobs)))
        ends = found.T.ravel().cumsum()
        starts = np.ascontiguousarray((ends - found.T.ravel()).reshape(-1, len(parts)).T)
        first = starts[0, :: math.prod(tiles.counts) // tiles.counts[AXES - self.d]].copy()

        def place(k: int) -> None:
            put_in_order(numbers, starts[k], parts[k].start, parts[k].stop, order)

        engine.for_each(place, range(len(parts)), n_jobs=self.n_jobs)
        return Sorting(order, np.append(first, n))

    def _spans(self, n: int, sorting: Sorting) -> list[Span]:
        """Return the tasks of n points."""
        least = max(_POINTS, -(-n // _TASKS))
        if not sorting.order.size:
            return [Span(p.start, p.stop, 0, self.size) for p in engine.ranges(n, least)]
        side, width = self.side, self.plan.width
        stride = self.size // self.lattice.shape[AXES - self.d]
        spans, begin, rows = [], 0, sorting.starts
        for t in range(len(rows) - 1):
            if rows[t + 1] - rows[begin] >= least or t == len(rows) - 2:
                # Rounding may put a point into a tile next to its own.
                low = max(0, begin * side - width) * stride
                high = min(self.size, ((t + 1) * side + width + LANES) * stride)
                if rows[t + 1] > rows[begin]:
                    spans.append(Span(int(rows[begin]), int(rows[t + 1]), low, high))
                begin = t + 1
        return spans

    def spread(
        self, rows: np.ndarray, weights: np.ndarray, sorting: Sorting, label: str | None = None
    ) -> np.ndarray:
        """Return the lattice with points (n, d) of some weights (n,) spread onto it, smoothed."""
        whole = np.zeros(self.size + 2 * LANES)
        if (gathered := self._moments(len(rows))) is not None:
            whole[: self.size] = self._spread_moments(rows, weights, gathered, label)
            self.smooth(whole)
            return whole
        spans = self._spans(len(rows), sorting)

        def task(span: Span) -> np.ndarray:
            how = self.lattice, self.taps.stencil
            return spread_points(rows, weights, sorting.order, span, *how)

        results = engine.run(task, spans, n_jobs=self.n_jobs, label=label)
        for span, part in zip(spans, results, strict=True):
            whole[span.first_cell : span.last_cell] += part[: span.last_cell - span.first_cell]
        self.smooth(whole)
        return whole

    def _moments(self, n: int) -> Moments | None:
        """Return the polynomials of parts of cells if moments serve n points; else None."""
        if self.d > 1 or n < _CROWDED * self.size:
            return None
        found = moments(self.plan, self.rtol)
        fits = found is not None and self.size * found.parts * TERMS <= _MOMENTS
        return found if fits else None

    def _spread_moments(
        self, rows: np.ndarray, weights: np.ndarray, gathered: Moments, label: str | None
    ) -> np.ndarray:
        """Return the cells of a line (size,) with points (n, 1) spread onto them by moments."""

        def task(part: slice) -> np.ndarray:
            parts = gathered.parts
            return part_moments(rows, weights, part.start, part.stop, self.lattice, parts)

        ranges = engine.ranges(len(rows), max(_POINTS, -(-len(rows) // _MOMENT_TASKS)))
        total = np.zeros((self.size * gathered.parts, TERMS))
        for part in engine.run(task, ranges, n_jobs=self.n_jobs, label=label):
            total += part
        cells = total.reshape(self.size, -1) @ gathered.table
        width = self.plan.width
        padded = np.zeros(self.size + 2 * width)
        for tap in range(width):
            first = width + tap - (width // 2 - 1)
            padded[first : first + self.size] += cells[:, tap]
        return padded[width : width + self.size]

    def smooth(self, whole: np.ndarray) -> None:
        """Convolve the lattice with the middle kernel along every axis, in place."""
        n0, n1, n2 = self.lattice.shape
        cells = whole[: self.size]
        views = (n0 * n1, n2, 1), (n0, n1, n2), (1, n0, n1 * n2)
        for shape in views[: self.d]:
            strips = shape[0] * -(-shape[2] // STRIP)
            step = max(1, _STRIP_CELLS // (shape[1] * min(STRIP, shape[2])))
            self._smooth_strips(cells.reshape(shape), engine.ranges(strips, step))

    def _smooth_strips(self, values: np.ndarray, parts: list[slice]) -> None:
        """Convolve strips of values (a, b, c) along b."""

        def task(part: slice) -> None:
            smooth(values, self.taps.middle, part.start, part.stop)

        engine.for_each(task, parts, n_jobs=self.n_jobs)

    def read(
        self,
        values: np.ndarray,
        query: np.ndarray,
        sorting: Sorting,
        own_weights: np.ndarray,
        margins: Margins,
        label: str | None = None,
    ) -> np.ndarray:
        """Return certified bounds (2, m) of the sums at queries (m, d), lower and upper.

        `own_weights` (m,) are those of the points that queries are, left out of their sums; (1,) of
        all of them; or empty. The upper bound is infinite where taps lie outside the lattice.
        """
        readers = Readers(query, sorting.order, own_weights, self.taps.own)

        def task(part: slice) -> np.ndarray:
            how = self.lattice, self.taps.stencil
            found = read_values(values, readers, part.start, part.stop, *how)
            return intervals(found, margins)

        return self._gathered(task, np.empty((2, len(query))), sorting, label)

    def read_slopes(
        self,
        values: np.ndarray,
        query: np.ndarray,
        sorting: Sorting,
        label: str | None = None,
    ) -> np.ndarray:
        """Return sums, and sums weighted by distances to the lattice's cells, (1 + d, m).

        Cells in the units of the rows: sum_j w_j K_j (x - x_j) sigma^2 / h^2 [GRD-5].
        """
        readers = Readers(query, sorting.order, NO_WEIGHTS, self.taps.own)

        def task(part: slice) -> np.ndarray:
            how = self.lattice, self.taps.stencil
            return read_slopes(values, readers, part.start, part.stop, *how)

        out = self._gathered(task, np.empty((1 + self.d, len(query))), sorting, label)
        out[1:] *= self.spacing
        return out

    def _gathered(self, task, out: np.ndarray, sorting: Sorting, label: str | None) -> np.ndarray:
        """Return `out` (k, m), filled by a task on ranges of the queries."""
        parts = engine.ranges(out.shape[1], _QUERIES)
        for part, found in zip(
            parts, engine.run(task, parts, n_jobs=self.n_jobs, label=label), strict=True
        ):
            out[:, sorting.order[part] if sorting.order.size else part] = found
        return out

    def margins(self, n: int, total: float, own: bool) -> Margins:
        """Return what bounds of sums over n points of weight `total` consist of [GRD-4].

        Rounding moves a value, in units: a term of a cell, of which a task adds its points one
        after the other, and the tasks are added; along every axis, a term of the smoothing (its
        kernel, an exponential of a number up to 80, is off by 90) and its additions; along every
        axis, the taps of a query; the sum of the lanes; and every tap by `Taps.rounding`. It moves
        the place of a point in cells by three units: those of the difference to the origin, of
        the spacing and of the product; that of one point differently, it may be, where it is
        spread, read and left out. Where points are gathered as moments, the taps of these
        have an error of their own, and so has what a query's own point has added.
        """
        plan, d = self.plan, self.d
        added: float = max(_POINTS, -(-n // _TASKS)) if self.size <= _RESIDENT else n
        places = (4 * max(self.lattice.shape) + 2) * _UNIT
        # A tap exp(-alpha a^2), a <= width / 2, moves by the share alpha width of that of a place.
        turned = 2 * d * (plan.spacing / plan.sigma) ** 2 * plan.width * places
        own_error = d * (self.taps.own_rounding + 2 * _UNIT) + turned
        error = 2 * d * self.taps.error
        if (gathered := self._moments(n)) is not None:
            # A tap is the sum of TERMS terms, of moments, each off by 4 units and its additions.
            most = max(_POINTS, -(-n // _MOMENT_TASKS)) + _MOMENT_TASKS
            added = max(added, gathered.sizes * (most + gathered.parts * TERMS + plan.width + 8))
            error += gathered.error
            own_error += 1.01 * (gathered.error + self.taps.error)
        units = added + _TASKS + 8 + d * (plan.reach + 94) + d * (plan.width + 2) + 8
        relative = 1.001 * (units * _UNIT + 2 * d * self.taps.rounding)
        apart = 2 * math.sqrt(d) * places * plan.spacing + 4 * _RADIUS * _UNIT
        stretch = 1.001 * (_RADIUS * apart + apart**2 + error)
        lost = 1.001 * math.exp(-((_RADIUS - min(apart, 1)) ** 2) / 2) * total
        lines = np.array([[slope, offset * total] for slope, offset in plan.lines])
        return Margins(lines, plan.lower, relative, own_error if own else 0.0, stretch, lost)
