"""Responsibilities among rows of which few are near each other, every pair taken once.

Blocks of rows are multiplied with each other, and the pairs that may count are listed; all else
goes by the lists. A pair that is farther than the nearest neighbours of both rows by enough is
below the rounding of either sum. The nearest so far will do, so blocks come in waves, each of
which knows what those before it found.

The scatter is that of `product_e_step`, with weights lambda_ij + lambda_ji for i < j and none for
j < i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastmetric import engine
from fastmetric.core.pairs import neighbour_list
from fastmetric.learn import costs
from fastmetric.learn.local_component.product_e_step import (
    Neighbours,
    are_safe,
    scatter_of,
    squares,
)

_SIDE = 1024  # rows of a block
_PROBES = 64

_Block = tuple[slice, slice]


class _Pairs(NamedTuple):
    """The pairs of rows i with rows j that may count."""

    i: slice
    j: slice
    starts: np.ndarray
    cols: np.ndarray
    s: np.ndarray


class NeighbourList:
    """Rows W (n, D) among each other, by distances in the first q coordinates."""

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "tree"
    name = "neighbour list"

    def __init__(self, problem: Neighbours, n_jobs: int | None = None) -> None:
        """Take rows whose products lose nothing that matters."""
        W = problem.W
        self.W, self.n_jobs, n = W, n_jobs, len(W)
        self._near = np.ascontiguousarray(W[:, : problem.q])
        self._sq = squares(self._near)
        self._negligible = W.dtype.type(np.finfo(W.dtype).eps / (4 * n))
        # All pairs beyond, together, are less than the rounding of a row's sum.
        self._reach = W.dtype.type(-2 * np.log(self._negligible))
        cuts = np.linspace(0, n, -(-n // _SIDE) + 1).round().astype(int)
        self._ranges = [slice(int(a), int(b)) for a, b in pairwise(cuts)]

    @staticmethod
    def serves(problem: Neighbours) -> bool:
        """Return whether all rows are asked for, and their products lose nothing that matters."""
        return problem.batch is None and are_safe(problem)

    @staticmethod
    def worth_building(
        problem: Neighbours, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return True: the cost is estimated from a few rows."""
        return True

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds, by the pairs of a few rows.

        Infinity, if more pairs count than may be listed.
        """
        (n, D), q, table = self.W.shape, self._near.shape[1], costs.E_STEP
        chosen = np.arange(0, n, max(1, n // _PROBES))
        s = self._sq[chosen, None] + self._sq - 2 * (self._near[chosen] @ self._near.T)
        s[np.arange(len(chosen)), chosen] = np.inf
        share = float(np.mean(s <= s.min(axis=1, keepdims=True) + self._reach))
        if share * n * n >= costs.NEIGHBOUR_LIST_PAIRS:
            return np.inf
        listed = share * (table.listed + table.listed_product * D)
        return n * n * (table.candidate + table.candidate_product * q + listed)

    def log_sums_and_scatter(self, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the log sums (n,) and the scatter (D, D)."""
        (n, D), dtype = self.W.shape, self.W.dtype
        pairs, least = self._listed(label)
        sums = np.zeros(n)

        def add_up(one: _Pairs) -> tuple:
            return neighbour_list.sum_listed(*one[2:], least[one.i], least[one.j])

        for one, (of_i, of_j) in self._run(add_up, pairs):
            sums[one.i] += of_i
            sums[one.j] += of_j
        share = (1 / sums).astype(dtype)

        def gradient(one: _Pairs) -> tuple:
            sides = ((least[part], share[part]) for part in one[:2])
            return neighbour_list.gradient_listed(*one[2:], *sides, self.W[one.j], self._negligible)

        gradient_rows, rho, r = np.zeros((n, D)), np.zeros(n), np.zeros(n)
        for one, (part, sums_i, sums_j) in self._run(gradient, pairs, label):
            gradient_rows[one.i] += part
            rho[one.i] += sums_i
            r[one.j] += sums_j
        u = rho[:, None] * self.W - gradient_rows
        log_sums = np.log(sums) - 0.5 * least
        return log_sums, scatter_of(u, rho, r, self.W, self.n_jobs)

    def _listed(self, label: str | None) -> tuple[list[_Pairs], np.ndarray]:
        """Return the pairs that may count, block by block, and the nearest distances (n,)."""
        least = np.full(len(self.W), np.inf, self.W.dtype)
        pairs = []
        for wave in self._waves():
            task = partial(self._list, known=least.copy())
            for one, nearest in engine.run(task, wave, n_jobs=self.n_jobs, label=label):
                pairs.append(one)
                for rows, found in zip(one[:2], nearest, strict=True):
                    least[rows] = np.minimum(least[rows], found)
        return pairs, least

    def _waves(self) -> Iterator[list[_Block]]:
        """Yield all blocks in waves, the diagonal first; each ends twice as far from it."""
        ranges, first, last = self._ranges, 0, 1
        while first < len(ranges):
            yield [
                pair for k in range(first, last) for pair in zip(ranges, ranges[k:], strict=False)
            ]
            first, last = last, 2 * last

    def _list(self, block: _Block, known: np.ndarray) -> tuple[_Pairs, tuple[np.ndarray, ...]]:
        """Return a block's pairs that may count, and its rows' nearest distances so far."""
        i, j = block
        products, nearest = self._near[i] @ self._near[j].T, (known[i].copy(), known[j].copy())
        found = neighbour_list.list_pairs(
            products, self._sq[i], self._sq[j], *nearest, self._reach, i == j
        )
        return _Pairs(i, j, *found), nearest

    def _run(
        self, task: Callable[[_Pairs], Any], pairs: list[_Pairs], label: str | None = None
    ) -> Iterator[tuple[_Pairs, Any]]:
        """Yield every block of pairs with what a task makes of it, in order."""
        return zip(pairs, engine.run(task, pairs, n_jobs=self.n_jobs, label=label), strict=True)
