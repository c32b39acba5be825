"""NCA's class sums and their scatter with a compact kernel: over the pairs within its reach."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fastmetric import engine
from fastmetric.core.pairs.cell_list import (
    CELL,
    COORDINATES,
    GROUP,
    LABEL,
    OTHER,
    OWN,
    ROWS,
    WEIGHT,
    CellList,
    cell_list_gradient,
    cell_list_sums,
    pairs_in_reach,
)
from fastmetric.learn.pair_sums.all_pairs import Classes, ClassSums

# Nanoseconds, to choose by; only their ratios matter. A pair of both passes in symmetric blocks and
# in lanes; a point of the lanes. And of how many groups one is looked at.
_PAIR, _POINT, _PROBED = (0.6, 0.7), 300.0, 8
_TASK = 1e8, (96, 3072)  # pairs in a task at most, and its rows at least and at most


class CutoffGrid:
    """Rows Z (n, d), d <= 3, sorted by class, that look at what is in reach of the biweight."""

    name = "pairs in reach"

    def __init__(
        self,
        Z: np.ndarray,
        classes: Classes,
        weights: np.ndarray,
        chosen: np.ndarray | None = None,
        n_jobs: int | None = None,
    ) -> None:
        """Take the weights (n,) of the points, and the rows `chosen` (m,), sorted; None: all."""
        self.n_jobs, n = n_jobs, len(Z)
        # Lanes go along where the points spread most.
        self._axes = np.argsort(-np.einsum("ij,ij->j", Z, Z), kind="stable")
        Z, labels = Z[:, self._axes], classes.numbers(np.arange(n))
        self._order, self._ref = _make_cell_list(Z, weights, labels)
        self._rows, self._query, self._selves = self._order, self._ref, np.arange(n)
        if chosen is not None:
            self._rows, self._query = _make_cell_list(Z[chosen], weights[chosen], labels[chosen])
            places = np.empty(n, np.intp)
            places[self._order] = np.arange(n)
            self._selves = places[chosen[self._rows]]
        self.pair_share = 0.0  # of the pairs that were visited in the last `log_sums`

    def pays(self) -> bool:
        """Return whether this is faster than all pairs: by the count of pairs of a few groups."""
        query, asked = self._query, len(self._rows)
        some = np.arange(0, len(query.column_of), _PROBED)
        seen = pairs_in_reach(query, self._ref, some).sum() / np.diff(query.groups)[some].sum()
        cost = seen * asked * _PAIR[1] + len(self._order) * _POINT
        # Rows of their own see every pair from one side only.
        return bool(cost < len(self._order) * asked * _PAIR[0] * (1 if query is self._ref else 2))

    def log_sums(self, label: str | None = None) -> ClassSums:
        """Return the class sums of the rows that are asked for."""
        sums = np.zeros((2, len(self._rows)))

        def task(part: tuple[int, int]) -> int:
            return cell_list_sums(self._query, self._ref, self._selves, *part, sums)

        pairs = self._run(task, self._query, self._ref, label)
        self.pair_share = pairs / (len(self._rows) * len(self._order))
        logs = np.empty(sums.shape)
        with np.errstate(divide="ignore"):
            logs[:, self._rows] = np.log(sums)
        return ClassSums(*logs)

    def gradient(
        self,
        log_totals: np.ndarray,
        own_weights: np.ndarray,
        other_weights: np.ndarray,
        label: str | None = None,
    ) -> np.ndarray:
        """Return U (n, d) [CCK-6]: row i pulls with its pull over exp(log_totals[i])."""
        strength = np.exp(-log_totals)
        for row, pull in ((OWN, own_weights), (OTHER, other_weights)):
            self._query.table[row] = (pull * strength)[self._rows]
        U = np.empty((len(self._order), len(self._axes)))
        U[self._order] = self._pulls(self._ref, self._query, label)
        if self._query is not self._ref:  # whose points do not pull
            U[self._order[self._selves]] += self._pulls(self._query, self._ref, label)
        return U[:, np.argsort(self._axes)]

    def _pulls(self, query: CellList, ref: CellList, label: str | None) -> np.ndarray:
        """Return what comes to the rows of `query` (m, d)."""
        out = np.zeros((3, query.table.shape[1]))

        def task(part: tuple[int, int]) -> int:
            cell_list_gradient(query, ref, *part, out)
            return 0

        self._run(task, query, ref, label)
        return out[: len(self._axes)].T

    def _run(
        self,
        task: Callable[[tuple[int, int]], int],
        query: CellList,
        ref: CellList,
        label: str | None,
    ) -> int:
        """Run a task on all groups of `query`, a range at a time; return the sum."""
        most, (low, high) = _TASK
        rows, step = query.groups[-1], int(min(max(most / ref.table.shape[1], low), high))
        # By rows, since groups in thin lanes have few.
        cuts = np.searchsorted(query.groups, np.append(np.arange(0, rows, step), rows))
        parts = [(int(a), int(b)) for a, b in pairwise(cuts) if a < b]
        return sum(engine.run(task, parts, n_jobs=self.n_jobs, label=label))


def _make_cell_list(
    Z: np.ndarray, weights: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, CellList]:
    """Return the order of the points Z (n, d) in lanes (n,), and the lanes."""
    n, d = Z.shape
    order, cells = np.argsort(Z[:, 0]), np.zeros((2, n))
    cells[: d - 1] = np.floor(Z[:, 1:].T / CELL)
    for k in range(d - 2, -1, -1):
        order = order[np.argsort(cells[k, order], kind="stable")]
    cells = cells[:, order]
    starts = _runs(cells)
    cells = cells[:, starts]
    slabs = _runs(cells[:1])
    table = np.zeros((len(ROWS), n), Z.dtype)
    for row, values in zip((*COORDINATES[:d], WEIGHT, LABEL), (*Z.T, weights, labels), strict=True):
        table[row] = values[order]
    across = table[COORDINATES[1:], :].astype(np.float64)
    # Groups begin anew with every lane.
    counts = -(-np.diff(starts, append=n) // GROUP)
    column_of = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(len(column_of)) - (np.cumsum(counts) - counts)[column_of]
    cell_list = CellList(
        table,
        True if d == 3 else None,
        np.append(starts, n),
        np.minimum.reduceat(across, starts, axis=1).T.copy(),
        np.maximum.reduceat(across, starts, axis=1).T.copy(),
        cells[1].copy(),
        np.append(slabs, len(starts)),
        cells[0, slabs],
        np.append(starts[column_of] + GROUP * number, n),
        column_of,
    )
    return order, cell_list


def _runs(keys: np.ndarray) -> np.ndarray:
    """Return where runs of equal keys (k, n) begin."""
    return np.append(0, 1 + np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)))
