"""The E-step of Local Component Analysis: sums over neighbours, and the scatter of neighbours.

Rows w_i are given in coordinates in which the kernel is exp(-|z_i - z_j|^2 / 2), z the first q
coordinates of w. The responsibility of neighbour j for row i is its share of the row's sum
[LOC-2]; the scatter is sum_ij lambda_ij (w_i - w_j)(w_i - w_j)ᵀ [LOC-3], over all coordinates.

Second moments would lose eps times the square of the distance between clusters. So each row gets
u_i = sum_j (lambda_ij + lambda_ji)(w_i - w_j), a sum of differences, and the scatter is
sum_i u_i w_iᵀ. In many dimensions, and where that loss is harmless, products are faster.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from fastmetric.core.kernels import GAUSSIAN
from fastmetric.learn.chooser import Way, choose
from fastmetric.learn.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.local_component.neighbour_list_e_step import NeighbourList
from fastmetric.learn.local_component.product_e_step import Batch, Neighbours, Products
from fastmetric.learn.pair_sums.problem import PairProblem, PairSums, Queries, RowWeights, Segments
from fastmetric.learn.pair_sums.ways import WAYS as PAIR_WAYS
from fastmetric.learn.rows import cross_product


class Expectation(NamedTuple):
    """The sums of rows (m,) over their neighbours; float64."""

    log_sums: np.ndarray  # (m,): log sum_j exp(-|z_i - z_j|^2 / 2)
    scatter: np.ndarray  # (D, D), a sum over the rows


class Expecting(Way, Protocol):
    """A way to compute the expectation of a problem `Neighbours`."""

    def log_sums_and_scatter(self, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the log sums (m,) and the scatter (D, D)."""


class Differences:
    """Rows among all neighbours by differences of rows, at any scale and in any dimension.

    The sums over pairs go by the ways of `pair_sums`, which may take a tree.
    """

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name = "differences"

    def __init__(self, problem: Neighbours, n_jobs: int | None = None) -> None:
        """Take any rows."""
        self.problem, self.n_jobs = problem, n_jobs

    @staticmethod
    def serves(problem: Neighbours) -> bool:
        """Return True: differences serve every problem."""
        return True

    @staticmethod
    def worth_building(
        problem: Neighbours, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return True: there is nothing to build."""
        return True

    def sums(self) -> PairSums:
        """Return what sums over the pairs of the scaled rows, which are one segment."""
        W, q, batch = self.problem
        scale, n = W.dtype.type(EXP_BANDWIDTH), len(W)
        # Queries of their own are batches of rows: no structure is worth building for one.
        queries, method = None, "auto"
        if batch is not None:
            none, method = np.zeros(len(batch.rows), np.intp), "exact"
            queries = Queries(batch.rows * scale, batch.self_index, none)
        pairs = PairProblem(W * scale, Segments(np.array([0, n])), np.ones(n), GAUSSIAN, queries, q)
        return choose(pairs, PAIR_WAYS, method, self.n_jobs)

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds."""
        return self.sums().cost()

    def log_sums_and_scatter(self, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the log sums (m,) and the scatter (D, D)."""
        sums = self.sums()
        log_sums, pairs = sums.log_sums(label).own, sums.problem
        m = pairs.m
        found = sums.gradient(RowWeights(log_sums, np.ones(m), np.zeros(m)), label)
        sides = [(found.points, pairs.points)]
        if found.queries is not None:
            sides.insert(0, (found.queries, pairs.asked().rows))
        return log_sums, _scatter(sides, self.n_jobs)


WAYS: tuple[type[Expecting], ...] = (NeighbourList, Products, Differences)


def among_all(
    W: np.ndarray, q: int, n_jobs: int | None = None, label: str | None = None
) -> Expectation:
    """Return the neighbourhood of every row of W (n, D) among all others."""
    way = choose(Neighbours(W, q), WAYS, n_jobs=n_jobs)
    return Expectation(*way.log_sums_and_scatter(label))


def of_rows(
    query: np.ndarray,
    ref: np.ndarray,
    self_index: np.ndarray,
    q: int,
    n_jobs: int | None = None,
    label: str | None = None,
) -> Expectation:
    """Return the neighbourhood of the rows `query` (m, D) among `ref` (n, D).

    Row i is itself ref[self_index[i]], left out; -1: it is none of them.
    """
    problem = Neighbours(ref, q, Batch(query, self_index))
    return Expectation(*choose(problem, WAYS, n_jobs=n_jobs).log_sums_and_scatter(label))


def _scatter(sides: list[tuple[np.ndarray, np.ndarray]], n_jobs: int | None) -> np.ndarray:
    """Return the scatter (D, D) from u and the scaled rows of both sides of the pairs."""
    total = sum(cross_product(U, rows, np.zeros(rows.shape[1]), n_jobs) for U, rows in sides)
    return (total + np.transpose(total)) / (2 * EXP_BANDWIDTH**2)
