"""NCA's class sums and their gradient by trees, one per class, in the projected space.

Rows of one class are neighbours in their own tree, and walk in groups over that tree (own
class, each row left out) and over all the other trees (other classes). The sums of a group
come with a bound of their error, which makes a certificate for the objective [SUM-5].
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.groups import Queries, Rule
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pulls import Sources, Targets, pull_groups, share_out
from fastmetric.core.tiles import ALIGN
from fastmetric.core.tree import UNIT, Tree
from fastmetric.learn.totals import (
    Path,
    Probe,
    Totals,
    Walk,
    foreseen,
    group_starts,
    totals,
)
from fastmetric.learn.trees import build_tree, summarised

_RULE = Rule(GAUSSIAN, 1.0, 0.0, 0.0)  # exp(-s)
# Nanoseconds, to choose by; only their ratios matter. A pair of both passes in symmetric blocks
# and in leaves, and more for every dimension; a node's field at one row; a node looked at; a
# faint row.
_PAIR, _FIELD, _NODE, _FAINT_ROW = (1.6, 5.0, 0.25), 12.0, 700.0, 8000.0
_PARTS = 32  # tasks of the scatter at most: each returns an array over all points


class ClassSums(NamedTuple):
    """Logs of the sums (n,) over the own class and over the others, with bounds (3, n) each."""

    own: np.ndarray
    other: np.ndarray


class Forest:
    """The trees of all classes over projected rows Z (n, d), sorted by class."""

    def __init__(self, Z: np.ndarray, offsets: np.ndarray, n_jobs: int | None = None) -> None:
        """Take class c as the rows offsets[c]:offsets[c + 1], none of them empty."""
        self.n_jobs, self.offsets = n_jobs, offsets
        trees = [build_tree(Z[a:b], n_jobs=n_jobs) for a, b in pairwise(offsets)]
        # Every tree begins with a new panel; what lies between is never read.
        sizes = np.diff(offsets)
        bases = np.concatenate([[0], np.cumsum(sizes + -sizes % UNIT)])
        self.roots = np.concatenate([[0], np.cumsum([len(tree.starts) for tree in trees])])
        rows = np.zeros((bases[-1] + -bases[-1] % ALIGN, Z.shape[1]), Z.dtype)
        self.places = np.empty(len(Z), np.intp)  # of the sorted rows in the forest
        for a, base, tree in zip(offsets, bases, trees, strict=False):
            rows[base : base + len(tree.rows)] = tree.rows
            self.places[a + tree.order] = base + np.arange(len(tree.rows))
        self.reference = summarised(
            _planted(trees, rows, bases, self.roots),
            np.ones(len(rows)),
            np.sqrt(0.5),  # of the Gaussian that exp(-s) is
            [[(int(a), int(b)) for a, b in pairwise(self.roots)]],
            expanded=True,
            n_jobs=n_jobs,
        )
        self.cols = np.ascontiguousarray(rows.T)
        self.queries = [self._class_queries(c, tree) for c, tree in enumerate(trees)]
        self._found: list[tuple[int, int, Totals]] = []  # class, own or other, sums

    def _class_queries(self, c: int, tree: Tree) -> Queries:
        """Return the rows of a class, in the order of its tree."""
        base = self.reference.tree.starts[self.roots[c]]
        starts = group_starts(tree)
        stops = np.append(starts[1:], len(tree.rows))
        selves = base + np.arange(len(tree.rows))
        return Queries(tree.rows, selves, starts, stops, np.zeros(len(starts)))

    def _walks(self, c: int, rtol: float, label: str | None) -> tuple[Walk, Walk]:
        """Return the walks of a class over its own tree and over the others."""
        eps = float(np.finfo(self.cols.dtype).eps)
        rule = _RULE._replace(rtol=max(rtol, eps / 2))
        roots = self.roots[:-1]
        own = Walk(self.reference, rule, roots[c : c + 1], False, True, self.n_jobs, label)
        return own, own._replace(roots=np.delete(roots, c))

    def pays(self, rtol: float) -> bool:
        """Return whether the trees are faster than all pairs: by counts, from a few groups."""
        n, d = len(self.places), len(self.cols)
        walks = [self._walks(c, rtol, None) for c in range(len(self.queries))]
        groups = [
            Probe(queries, g, walks[c])
            for c, queries in enumerate(self.queries)
            for g in range(len(queries.starts))
        ]
        work = foreseen(groups, self.n_jobs)
        tree = work.pairs * (_PAIR[1] + _PAIR[2] * d) + work.nodes * _NODE
        tree += (work.fields * _FIELD + work.faint * _FAINT_ROW) * (d + 2)
        # Every row of a probe was summed twice: own class and others.
        return tree < n * work.queries / 2 * (_PAIR[0] + _PAIR[2] * d)

    def log_sums(self, rtol: float, label: str | None = None) -> ClassSums:
        """Return the class sums of all rows, in the order of Z, each within rtol."""
        both, self._found = np.empty((2, 3, len(self.places))), []
        n, d = len(self.places), len(self.cols)
        for c, queries in enumerate(self.queries):
            at = self._rows_of(c)
            for k, walk in enumerate(self._walks(c, rtol, label)):
                found = totals(queries, walk)
                both[k][:, at] = found.logs()
                self._found.append((c, k, found))
        size = np.where(np.isfinite(both), np.abs(both), 0).max(axis=1) + d + np.log2(n)
        rounding = 8 * np.finfo(self.cols.dtype).eps * size
        both[:, 1] -= rounding
        both[:, 2] += rounding
        return ClassSums(both[0], both[1])

    def _rows_of(self, c: int) -> np.ndarray:
        """Return the rows of Z of a class in the order of its tree."""
        a, b = self.offsets[c], self.offsets[c + 1]
        return a + np.argsort(self.places[a:b])

    def scatter(
        self,
        log_totals: np.ndarray,
        own_pull: np.ndarray,
        other_pull: np.ndarray,
        label: str | None = None,
    ) -> np.ndarray:
        """Return U (n, d) [CCK-6]; the weight of a pair is pull_i exp(-s_ij - log_totals[i]).

        Along the paths of the last `log_sums`.
        """
        at_points = np.zeros(self.cols.shape)
        adjoints = np.zeros(self.reference.nodes.coefficients.shape)
        for c, k, found in self._found:
            rows = self._rows_of(c)
            sources = Sources(log_totals[rows], (own_pull, other_pull)[k][rows])
            self._scatter_class(self.queries[c], found, sources, (at_points, adjoints), label)

        def task(part: tuple[int, int]) -> None:
            share_out(self.reference, _RULE, adjoints, at_points, *part)

        for _ in engine.run(task, list(pairwise(self.roots)), n_jobs=self.n_jobs):
            pass
        return at_points.T[self.places]

    def _scatter_class(
        self,
        queries: Queries,
        found: Totals,
        sources: Sources,
        totals: tuple[np.ndarray, np.ndarray],
        label: str | None,
    ) -> None:
        """Add the scatter of one class's rows over some trees to the totals at points and nodes."""
        plain = sources.strengths.copy()
        plain[found.faint] = 0  # these go alone, as they were summed
        alone = Sources(*(part[found.faint] for part in sources))
        for together, chosen in ((True, sources._replace(strengths=plain)), (False, alone)):
            paths = [path for path in found.paths if (path.queries is queries) == together]
            if not paths:
                continue
            mine = np.zeros(paths[0].queries.rows.shape)

            def task(
                part: list[Path], chosen: Sources = chosen, mine: np.ndarray = mine
            ) -> tuple[np.ndarray, np.ndarray]:
                here = Targets(mine, *(np.zeros(total.shape) for total in totals))
                for path in part:
                    pull_groups(
                        path.queries, self.reference, self.cols, _RULE, chosen, here, *path[1:]
                    )
                return here.points, here.adjoints

            pieces = max(1, round(_PARTS * len(mine) / len(self.places)))
            step = -(-len(paths) // pieces)
            parts = [paths[i : i + step] for i in range(0, len(paths), step)]
            for result in engine.run(task, parts, n_jobs=self.n_jobs, label=label):
                for total, part in zip(totals, result, strict=True):
                    total += part
            totals[0][:, paths[0].queries.selves] += mine.T


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
