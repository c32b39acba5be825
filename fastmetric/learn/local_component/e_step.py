"""The E-step of Local Component Analysis: sums over neighbours, and the scatter of neighbours.

Rows w_i are given in coordinates in which the kernel is exp(-|z_i - z_j|^2 / 2), z the first q
coordinates of w. The responsibility of neighbour j for row i is its share of the row's sum
[LOC-2]; the scatter is sum_ij lambda_ij (w_i - w_j)(w_i - w_j)ᵀ [LOC-3], over all coordinates.

Second moments would lose eps times the square of the distance between clusters. So each row gets
u_i = sum_j (lambda_ij + lambda_ji)(w_i - w_j), a sum of differences, and the scatter is
sum_i u_i w_iᵀ. In many dimensions, and where that loss is harmless, products are faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric.core.kernels import GAUSSIAN
from fastmetric.learn.kernel_sums.kernel_table import EXP_BANDWIDTH
from fastmetric.learn.local_component import product_e_step
from fastmetric.learn.local_component.neighbour_list_e_step import NeighbourList
from fastmetric.learn.pair_sums.chooser import choose
from fastmetric.learn.pair_sums.problem import PairProblem, Queries, RowWeights, Segments
from fastmetric.learn.rows import cross_product


class Expectation(NamedTuple):
    """What rows (m,) see of their neighbours; float64."""

    log_sums: np.ndarray  # (m,): log sum_j exp(-|z_i - z_j|^2 / 2)
    scatter: np.ndarray  # (D, D), a sum over the rows


def among_all(
    W: np.ndarray, q: int, n_jobs: int | None = None, label: str | None = None
) -> Expectation:
    """Return the neighbourhood of every row of W (n, D) among all others."""
    n = len(W)
    if product_e_step.are_safe(W):
        pairs = NeighbourList(W, q, n_jobs)
        if pairs.pays():
            return Expectation(*pairs.log_sums_and_scatter(label))
        everyone = np.arange(n)
        return Expectation(*product_e_step.log_sums_and_scatter(W, W, everyone, q, n_jobs, label))
    return _by_differences(_pairs(W * W.dtype.type(EXP_BANDWIDTH), q), n_jobs, label)


def _pairs(rows: np.ndarray, q: int, queries: Queries | None = None) -> PairProblem:
    """Return what is summed: over scaled rows (n, D), which are one segment."""
    n = len(rows)
    return PairProblem(rows, Segments(np.array([0, n])), np.ones(n), GAUSSIAN, queries, q)


def _by_differences(problem: PairProblem, n_jobs: int | None, label: str | None) -> Expectation:
    """Return the log sums and the scatter of scaled rows, by differences of rows."""
    # Queries of their own are batches of rows: no structure is worth building for one.
    method = "auto" if problem.queries is None else "exact"
    way = choose(problem, method, n_jobs)
    log_sums = way.log_sums(label).own
    m = problem.m
    found = way.gradient(RowWeights(log_sums, np.ones(m), np.zeros(m)), label)
    sides = [(found.points, problem.points)]
    if found.queries is not None:
        sides.insert(0, (found.queries, problem.asked().rows))
    return Expectation(log_sums, _scatter(sides, n_jobs))


def of_rows(
    query: np.ndarray,
    ref: np.ndarray,
    self_index: np.ndarray,
    q: int,
    n_jobs: int | None = None,
    label: str | None = None,
) -> Expectation:
    """Return the neighbourhood of the rows `query` (m, D) among `ref` (n, D).

    Row i is itself ref[selves[i]], left out; -1: it is none of them.
    """
    if product_e_step.are_safe(query, ref):
        return Expectation(
            *product_e_step.log_sums_and_scatter(query, ref, self_index, q, n_jobs, label)
        )
    query, ref = query * query.dtype.type(EXP_BANDWIDTH), ref * ref.dtype.type(EXP_BANDWIDTH)
    queries = Queries(query, self_index, np.zeros(len(query), np.intp))
    return _by_differences(_pairs(ref, q, queries), n_jobs, label)


def _scatter(sides: list[tuple[np.ndarray, np.ndarray]], n_jobs: int | None) -> np.ndarray:
    """Return the scatter (D, D) from the pulls u and the scaled rows of both sides of the pairs."""
    total = sum(cross_product(U, rows, np.zeros(rows.shape[1]), n_jobs) for U, rows in sides)
    return (total + np.transpose(total)) / (2 * EXP_BANDWIDTH**2)
