"""NCA's class sums and their gradient by trees, one per class, in the projected space.

Rows of one class are neighbours in a tree, and walk in groups over their class's tree (each row
left out) and over all the other trees. The sums of a group come with a bound of their error,
which makes a certificate for the objective [SUM-5]; a compact kernel's are exact, and all that
lies beyond its reach is left out.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs.pair_tiles import ALIGN
from fastmetric.core.tree.balanced_tree import UNIT, Tree
from fastmetric.core.walk.gradient_replay import Sources, Targets, replay_gradient, share_out
from fastmetric.core.walk.query_groups import Queries, Rule
from fastmetric.learn.kernel_sums.certified_walks import (
    Path,
    Probe,
    Walk,
    WalkSums,
    foreseen,
    group_starts,
    walk_sums,
)
from fastmetric.learn.kernel_sums.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.pair_sums.all_pairs import Classes, ClassSums
from fastmetric.learn.tree_building import build_tree, build_trees, summarised

# Nanoseconds, to choose by; only their ratios matter. A pair of both passes in symmetric blocks
# and in leaves, and more for every dimension; a node's field at one row; a node looked at; a
# faint row; a point of the trees.
_PAIR, _FIELD, _NODE, _UNDERFLOWED_ROW, _POINT = (1.6, 5.0, 0.25), 20.0, 1100.0, 8000.0, 5000.0
_PARTS = 32  # tasks of the scatter at most: each returns an array over all points


class _ClassGroups(NamedTuple):
    """The rows of one class that are asked for."""

    number: int  # of the class
    rows: np.ndarray  # of the result, in the order of the queries
    queries: Queries


class ClassTrees:
    """The trees of all classes over projected rows Z (n, d), sorted by class."""

    name = "trees"

    def __init__(
        self,
        Z: np.ndarray,
        classes: Classes,
        weights: np.ndarray,
        code: int,
        chosen: np.ndarray | None = None,
        n_jobs: int | None = None,
        *,
        rtol: float = 0.0,
    ) -> None:
        """Take the weights (n,) of the points, and the rows `chosen` (m,), sorted; None: all.

        Sums are within `rtol`; those of a compact kernel are exact, far nodes left out.
        """
        self.n_jobs, offsets = n_jobs, classes.offsets
        eps = float(np.finfo(Z.dtype).eps)
        self._rule = Rule(code, 1.0, max(rtol, eps / 2) if code == GAUSSIAN else 0.0, 0.0)
        trees = build_trees([Z[a:b] for a, b in pairwise(offsets)], n_jobs=n_jobs)
        # Every tree begins with a new panel; what lies between is never read.
        sizes = classes.sizes
        bases = np.concatenate([[0], np.cumsum(sizes + -sizes % UNIT)])
        self.roots = np.concatenate([[0], np.cumsum([len(tree.starts) for tree in trees])])
        rows = np.zeros((bases[-1] + -bases[-1] % ALIGN, Z.shape[1]), Z.dtype)
        self.places = np.empty(len(Z), np.intp)  # of the sorted rows in the forest
        point_weights = np.ones(len(rows))
        for a, base, tree in zip(offsets, bases, trees, strict=False):
            rows[base : base + len(tree.rows)] = tree.rows
            self.places[a + tree.order] = base + np.arange(len(tree.rows))
        point_weights[self.places] = weights
        self.reference = summarised(
            _planted(trees, rows, bases, self.roots),
            point_weights,
            EXP_BANDWIDTH,
            [[(int(a), int(b)) for a, b in pairwise(self.roots)]],
            expanded=code == GAUSSIAN,
            n_jobs=n_jobs,
        )
        self.cols = np.ascontiguousarray(rows.T)
        self.m = len(Z) if chosen is None else len(chosen)
        self._all = chosen is None
        present = range(len(trees)) if chosen is None else np.unique(classes.numbers(chosen))
        self._groups = [self._class_groups(c, Z, classes, trees[c], chosen) for c in present]
        self._found: list[tuple[_ClassGroups, int, WalkSums]] = []  # own or other, sums

    def _class_groups(
        self, c: int, Z: np.ndarray, classes: Classes, tree: Tree, chosen: np.ndarray | None
    ) -> _ClassGroups:
        """Return the rows of a class that are asked for, grouped."""
        a, b = classes.offsets[c], classes.offsets[c + 1]
        first = a
        if chosen is not None:
            first, last = np.searchsorted(chosen, [a, b])
            asked = chosen[first:last]
            tree = build_tree(Z[asked], n_jobs=self.n_jobs)
            self_index = self.places[asked[tree.order]]
        else:
            self_index = self.places[a + tree.order]
        starts = group_starts(tree)
        stops = np.append(starts[1:], len(tree.rows))
        queries = Queries(tree.rows, self_index, starts, stops, np.zeros(len(starts)))
        return _ClassGroups(c, first + tree.order, queries)

    def _walks(self, c: int) -> tuple[Walk, ...]:
        """Return the walks of a class over its own tree and over the others, if there are any."""
        roots = self.roots[:-1]
        own = Walk(self.reference, self._rule, roots[c : c + 1], keep=True)
        others = own._replace(roots=np.delete(roots, c))
        return (own, others) if others.roots.size else (own,)

    def pays(self) -> bool:
        """Return whether the trees are faster than all pairs: by counts, from a few groups."""
        n, d = len(self.places), len(self.cols)
        groups = [
            Probe(some.queries, g, self._walks(some.number))
            for some in self._groups
            for g in range(len(some.queries.starts))
        ]
        work = foreseen(groups, self.n_jobs)
        tree = work.pairs * (_PAIR[1] + _PAIR[2] * d) + work.nodes * _NODE
        tree += (work.fields * _FIELD + work.underflowed * _UNDERFLOWED_ROW) * (d + 2)
        # A row of a probe was summed in every walk: own class and others.
        asked = work.queries / len(groups[0].walks)
        tree += _POINT * n * asked / self.m
        # Rows of their own see every pair from one side only.
        return tree < n * asked * (_PAIR[0] + _PAIR[2] * d) * (1 if self._all else 2)

    @property
    def pair_share(self) -> float:
        """Return the share of the pairs that were visited in the last `log_sums`."""
        tree, visited = self.reference.tree, 0.0
        for _, _, found in self._found:
            for path in found.paths:
                nodes = path.visits[:, 0]
                sizes = np.where(path.visits[:, 1] == 0, tree.stops[nodes] - tree.starts[nodes], 0)
                visited += float(np.repeat(path.lengths(), path.counts) @ sizes)
        return visited / (self.m * len(self.places))

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the class sums of the rows that are asked for."""
        both, (n, d) = np.full((2, 3, self.m), -np.inf), (len(self.places), len(self.cols))
        walks = [
            (some, k, walk)
            for some in self._groups
            for k, walk in enumerate(self._walks(some.number))
        ]
        found = walk_sums([(some.queries, walk) for some, _, walk in walks], self.n_jobs, label)
        self._found = [(some, k, one) for (some, k, _), one in zip(walks, found, strict=True)]
        for some, k, one in self._found:
            both[k][:, some.rows] = one.logs()
        if self._rule.code != GAUSSIAN:
            return ClassSums(both[0, 0], both[1, 0])
        size = np.where(np.isfinite(both), np.abs(both), 0).max(axis=1) + d + np.log2(n)
        rounding = 8 * np.finfo(self.cols.dtype).eps * size
        both[:, 1] -= rounding
        both[:, 2] += rounding
        return ClassSums(both[0, 0], both[1, 0], both[0, 1:], both[1, 1:])

    def gradient(
        self,
        log_totals: np.ndarray,
        own_weights: np.ndarray,
        other_weights: np.ndarray,
        label: str | None = None,
    ) -> np.ndarray:
        """Return U (n, d) [CCK-6]: row i pulls with its pull over exp(log_totals[i]).

        Along the paths of the last `log_sums`.
        """
        jobs = []
        for some, k, found in self._found:
            sources = Sources(log_totals[some.rows], (own_weights, other_weights)[k][some.rows])
            jobs += _jobs(some.queries, found, sources)
        step = -(-len(jobs) // _PARTS)
        parts = [jobs[i : i + step] for i in range(0, len(jobs), step)]
        at_points = np.zeros(self.cols.shape)
        adjoints = np.zeros(self.reference.nodes.coefficients.shape)
        # Zeros; fresh memory costs more than clearing.
        spare: list[tuple[np.ndarray, np.ndarray]] = []

        def pull(part: list[_Job]) -> tuple[np.ndarray, np.ndarray]:
            try:
                to_points, to_nodes = spare.pop()
            except IndexError:
                to_points, to_nodes = np.zeros(at_points.shape), np.zeros(adjoints.shape)
            for path, sources, mine in part:
                here = Targets(mine, to_points, to_nodes)
                replay_gradient(
                    path.queries, self.reference, self.cols, self._rule, sources, here, *path[1:]
                )
            return to_points, to_nodes

        for gradient_rows in engine.run(pull, parts, n_jobs=self.n_jobs, label=label):
            for whole, one in zip((at_points, adjoints), gradient_rows, strict=True):
                whole += one
                one.fill(0)
            spare.append(gradient_rows)
        for queries, mine in {id(job.mine): (job.path.queries, job.mine) for job in jobs}.values():
            at_points[:, queries.self_index] += mine.T

        def share(part: tuple[int, int]) -> None:
            share_out(self.reference, self._rule, adjoints, at_points, *part)

        for _ in engine.run(share, list(pairwise(self.roots)), n_jobs=self.n_jobs):
            pass
        return at_points.T[self.places]


class _Job(NamedTuple):
    """Some groups that scatter along their path."""

    path: Path
    sources: Sources
    mine: np.ndarray  # (m, d): what comes back to the queries


def _jobs(queries: Queries, found: WalkSums, sources: Sources) -> list[_Job]:
    """Return the jobs of one class's rows over some trees; faint rows go alone, as when summed."""
    plain = sources.strengths.copy()
    plain[found.underflowed] = 0
    together = sources._replace(strengths=plain), np.zeros(queries.rows.shape)
    few = Sources(*(part[found.underflowed] for part in sources))
    alone = few, np.zeros((len(found.underflowed), queries.rows.shape[1]))
    return [_Job(path, *(together if path.queries is queries else alone)) for path in found.paths]


def _planted(trees: list[Tree], rows: np.ndarray, bases: np.ndarray, roots: np.ndarray) -> Tree:
    """Return trees side by side as one: points from `bases` on, nodes from `roots` on."""
    planted = list(zip(trees, bases, roots, strict=False))
    return Tree(
        np.arange(len(rows)),
        rows,
        np.concatenate([tree.starts + base for tree, base, _ in planted]),
        np.concatenate([tree.stops + base for tree, base, _ in planted]),
        np.concatenate([np.where(t.children < 0, -1, t.children + root) for t, _, root in planted]),
        np.concatenate([tree.lower for tree in trees]),
        np.concatenate([tree.upper for tree in trees]),
    )
