"""Sums at groups of queries over trees, on all cores, at any scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.error_bounds import (
    FLOAT32_COARSEST,
    FLOAT32_LIGHTEST,
    SECOND_ORDER,
    UNDERFLOW,
    UNDERFLOWED,
    float32_error,
)
from fastmetric.core.kernels import GAUSSIAN, has_tails
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.walk.exact_sums import exact_sums
from fastmetric.core.walk.interaction_lists import CENTROID, PAIRS, InteractionLists, Walk
from fastmetric.core.walk.largest_exponents import largest_exponents
from fastmetric.core.walk.query_cells import make_query_cells
from fastmetric.core.walk.query_groups import GROUP, Queries, Reference, Rule
from fastmetric.core.walk.summation import group_sums
from fastmetric.learn.tree_building import with_float32_leaves

_GROUPS = 64  # of queries in a task at most
_PAIRS = 1 << 22  # in a task over all pairs, if a group has no more
# Groups that walk to predict the work: this many at least and at most, and between them one in
# so many, so that the prediction costs only a few per cent of what it saves.
_PROBES, _PROBE_SHARE = (4, 12), 20
_FLOAT32_SHARE = 0.4  # of the tolerance that the rounding of float32 may use
_CLOSE = 1e-9  # relative errors whose rounding in a sum with 1 matters
_QUERIES = 2000  # in a task that searches for their largest terms


class Interactions(NamedTuple):
    """Interaction lists, and the queries that they belong to."""

    queries: Queries
    lists: InteractionLists

    def lengths(self) -> np.ndarray:
        """Return the number of queries of every cell (k,)."""
        groups, queries, first = len(self.lists.local), self.queries, self.lists.first
        cells = make_query_cells(queries, first, first + groups, len(self.lists.counts) > groups)
        return queries.stops[cells.lasts - 1] - queries.starts[cells.firsts]


class WalkSums(NamedTuple):
    """Sums at the queries (m,), each times exp(shift), with bounds of their errors."""

    total: np.ndarray
    error: np.ndarray
    shift: np.ndarray
    interactions: list[Interactions]  # of the groups, then of the underflowed queries, each alone
    underflowed: np.ndarray  # indices of the queries whose plain sums underflowed

    def logs(self) -> np.ndarray:
        """Return the logs of the sums and of their certified bounds (3, m), up to rounding."""
        # An expansion may be negative, within atol.
        parts = np.maximum([self.total, self.total - self.error, self.total + self.error], 0)
        with np.errstate(divide="ignore"):
            logs = np.log(parts)
        # The sum of a total and an error near its last bit would be rounded to that bit.
        close = np.flatnonzero(self.error < _CLOSE * self.total)
        ratio = self.error[close] / self.total[close]
        logs[1:, close] = logs[0, close] + np.log1p([-ratio, ratio])
        return logs - self.shift


def in_float32(
    reference: Reference, rule: Rule, h: float, n_jobs: int | None
) -> tuple[Reference, Rule]:
    """Return both with leaves in float32 if the tolerance allows it; else unchanged [SUM-8].

    `h` is the bandwidth.
    """
    error = _float32_error(reference, rule)
    if error > min(_FLOAT32_SHARE * rule.rtol, FLOAT32_COARSEST):
        return reference, rule
    if not reference.float32_panels.size:
        reference = with_float32_leaves(reference, h, n_jobs)
    # The walk's lower bounds of sums, which scale its budget, have this error as well.
    rtol = (rule.rtol - error) / (1 + 2 * error)
    return reference, rule._replace(rtol=rtol, in_float32=error)


def _float32_error(reference: Reference, rule: Rule) -> float:
    """Return the relative error of leaves in float32; infinity where they are not applicable."""
    tree = reference.tree
    light = reference.point_weights.min() < FLOAT32_LIGHTEST
    if rule.code != GAUSSIAN or tree.rows.dtype != np.float64 or light:
        return np.inf
    longest = (tree.stops - tree.starts)[tree.children < 0].max()
    return float32_error(tree.rows.shape[1], int(longest))


Walks = Sequence[tuple[Queries, Walk]]  # queries, and the walk of each


def group_starts(tree: Tree) -> np.ndarray:
    """Return where groups of queries begin: the leaves, cut to at most GROUP points."""
    leaves = tree.children < 0
    starts, stops = np.sort(tree.starts[leaves]), np.sort(tree.stops[leaves])
    return np.concatenate([np.arange(*ends, GROUP) for ends in zip(starts, stops, strict=True)])


def single(queries: Queries, chosen: np.ndarray, shifts: np.ndarray) -> Queries:
    """Return some of the queries, each a group of its own."""
    alone = np.arange(len(chosen))
    return Queries(queries.rows[chosen], queries.self_index[chosen], alone, alone + 1, shifts)


def walk_sums(asked: Walks, n_jobs: int | None = None, label: str | None = None) -> list[WalkSums]:
    """Return the sums at all queries; underflowed ones relative to their largest term."""
    found = _plain_sums_of_walks(asked, n_jobs, label)
    for one, (_, walk) in zip(found, asked, strict=True):
        # Relative to the exact sum, which the upper bound exceeds. Underflowed ones are in float64.
        one.error[:] += walk.rule.in_float32 * (1 + SECOND_ORDER) * (one.total + one.error)
    underflowed = [
        _underflowed(one.total, walk) for one, (_, walk) in zip(found, asked, strict=True)
    ]
    few = [
        (single(queries, numbers, np.zeros(len(numbers))), walk)
        for (queries, walk), numbers in zip(asked, underflowed, strict=True)
    ]
    shifts = _shifts(few, n_jobs, label)
    alone = [
        (queries._replace(shifts=shift), walk)
        for (queries, walk), shift in zip(few, shifts, strict=True)
    ]
    again = _plain_sums_of_walks(alone, n_jobs, label)
    for k, (one, numbers, more) in enumerate(zip(found, underflowed, again, strict=True)):
        one.total[numbers], one.error[numbers] = _clipped(more, shifts[k], asked[k][1])
        one.shift[numbers] = shifts[k]
        both = one.interactions + more.interactions
        found[k] = one._replace(interactions=both, underflowed=numbers)
    for one, (_, walk) in zip(found, asked, strict=True):
        if has_tails(walk.rule.code):
            lost = UNDERFLOW[walk.ref.tree.rows.dtype]
            one.error[:] += walk.ref.nodes.weights[walk.roots].sum() * lost
            # Nothing to sum: no term has a largest one.
            one.error[one.underflowed[one.total[one.underflowed] == 0]] = 0
    return found


def _clipped(found: WalkSums, shifts: np.ndarray, walk: Walk) -> tuple[np.ndarray, np.ndarray]:
    """Return totals relative to the largest term, at least 1 and at most n, and their errors.

    Without the limits, totals are arbitrary where exponents are so large that their rounding
    exceeds the range of exp.
    """
    most = len(walk.ref.point_weights)
    total = np.where(found.total >= 1, np.minimum(found.total, most), 1.0)
    error = np.where(found.error <= most, found.error, most)
    some = shifts > 0  # else the sum is empty
    return np.where(some, total, found.total), np.where(some, error, found.error)


def _underflowed(total: np.ndarray, walk: Walk) -> np.ndarray:
    """Return the numbers of the queries whose totals have lost terms."""
    least = UNDERFLOWED[walk.ref.tree.rows.dtype]
    if not has_tails(walk.rule.code) or walk.rule.atol >= least:
        return np.empty(0, np.intp)
    # Not `total < least`: a distance whose carries overflow is NaN.
    return np.flatnonzero(~(total >= least))


class Work(NamedTuple):
    """The counted work of walks."""

    queries: float
    pairs: float  # summed pair by pair
    expansions: float  # expansions or centroids, times queries
    nodes: float  # visited, by all groups
    underflowed: float  # queries that have to be summed alone

    def plus(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


class Probe(NamedTuple):
    """A group of queries, and the walks that it would take."""

    queries: Queries
    group: int
    walks: tuple[Walk, ...]


def predicted_work(groups: Sequence[Probe], n_jobs: int | None) -> Work:
    """Return the work of a few of the groups, evenly spread, as a sample of all."""
    count = min(max(_PROBES[0], len(groups) // _PROBE_SHARE), _PROBES[1])
    chosen = [groups[k] for k in np.unique(np.linspace(0, len(groups) - 1, count).astype(int))]
    return reduce(Work.plus, engine.run(_work, chosen, n_jobs=n_jobs))


def _work(probe: Probe) -> Work:
    """Return the work of one group in all its walks."""
    queries, g, _ = probe
    first = g // _GROUPS * _GROUPS
    last = min(first + _GROUPS, len(queries.starts))
    rows = slice(*(ends[g] - queries.starts[first] for ends in (queries.starts, queries.stops)))
    work = Work(0, 0, 0, 0, 0)
    for walk in probe.walks:
        tree = walk.ref.tree
        whole = walk._replace(exact=False, keep=True)
        sums, _, lists = group_sums(queries, whole, first, last, g)
        counts, visits = lists.counts, lists.visits
        lengths = Interactions(queries, lists).lengths()
        sums = sums[rows]
        # The work of its cells is shared with their other queries.
        shares = np.repeat(len(sums) / lengths, counts)
        alone = shares == 1
        leaves = visits[alone & (visits[:, 1] == PAIRS), 0]
        underflowed = has_tails(walk.rule.code) * float(
            np.count_nonzero(sums < UNDERFLOWED[tree.rows.dtype])
        )
        work = work.plus(
            Work(
                len(sums),
                len(sums) * float((tree.stops[leaves] - tree.starts[leaves]).sum()),
                len(sums) * float(np.count_nonzero(visits[alone, 1] >= CENTROID)),
                2 * float(shares.sum()),  # an opened node has two children
                underflowed,
            )
        )
    return work


class _Part(NamedTuple):
    """A range of the queries or groups of one walk."""

    number: int  # of the walk
    first: int
    last: int


def _parts(sizes: list[int], steps: list[int]) -> list[_Part]:
    """Return the parts of all walks: one list, so that no thread waits for the end of a walk."""
    return [
        _Part(number, first, min(first + step, size))
        for number, (size, step) in enumerate(zip(sizes, steps, strict=True))
        for first in range(0, size, step)
    ]


def _groups_of(queries: Queries, walk: Walk) -> int:
    """Return how many groups a task takes; over all pairs they have nothing in common."""
    if not walk.exact:
        return _GROUPS
    pairs = len(queries.rows) * len(walk.ref.point_weights) // max(1, len(queries.starts))
    return max(1, min(_GROUPS, _PAIRS // max(1, pairs)))


def _plain_sums_of_walks(asked: Walks, n_jobs: int | None, label: str | None) -> list[WalkSums]:
    """Return the sums at the queries, with the shifts given."""
    none = np.empty(0, np.intp)
    sizes = [len(queries.rows) for queries, _ in asked]
    found = [WalkSums(np.empty(m), np.empty(m), np.zeros(m), [], none) for m in sizes]

    def task(part: _Part) -> tuple[np.ndarray, np.ndarray, InteractionLists]:
        (queries, walk), (_, first, last) = asked[part.number], part
        if not walk.exact:
            return group_sums(queries, walk, first, last, -1)
        nothing = InteractionLists(first, *_no_visits(last - first))
        return exact_sums(queries, walk, first, last), np.zeros(last - first), nothing

    steps = [_groups_of(queries, walk) for queries, walk in asked]
    parts = _parts([len(queries.starts) for queries, _ in asked], steps)
    results = engine.run(task, parts, n_jobs=n_jobs, label=label)
    for (number, first, last), (values, errors, lists) in zip(parts, results, strict=True):
        (queries, walk), one = asked[number], found[number]
        lengths = queries.stops[first:last] - queries.starts[first:last]
        rows = slice(queries.starts[first], queries.stops[last - 1])
        one.total[rows], one.error[rows] = values, np.repeat(errors, lengths)
        if walk.keep:
            one.interactions.append(Interactions(queries, lists))
    return found


def _no_visits(groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, visits and polynomials of groups that looked at no node."""
    return np.zeros(groups, np.int64), np.empty((0, 2), np.int32), np.zeros((groups, 1))


def _shifts(asked: Walks, n_jobs: int | None, label: str | None) -> list[np.ndarray]:
    """Return what makes the largest term of every query 1, in the exponent (m,).

    In the precision of the points, in which it is added to exponents.
    """
    references = {id(walk.ref): walk.ref for queries, walk in asked if len(queries.rows)}
    log_weights = {key: np.log(ref.point_weights) for key, ref in references.items()}
    shifts = [np.empty(len(queries.rows)) for queries, _ in asked]

    def task(part: _Part) -> np.ndarray:
        queries, walk = asked[part.number]
        return largest_exponents(queries, walk, log_weights[id(walk.ref)], part.first, part.last)

    parts = _parts([len(shift) for shift in shifts], [_QUERIES] * len(shifts))
    results = engine.run(task, parts, n_jobs=n_jobs, label=label)
    for (number, first, last), largest in zip(parts, results, strict=True):
        # Not finite: the sum is empty.
        dtype = asked[number][1].ref.tree.rows.dtype
        with np.errstate(over="ignore"):  # all terms are then lost, and the first one counts
            shift = np.where(np.isfinite(largest), -largest, 0).astype(dtype)
        shifts[number][first:last] = shift
    return shifts
