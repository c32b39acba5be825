"""Sums of Gaussians over all pairs, in many dimensions, by products of matrices."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from fastmetric.core.error_bounds import UNDERFLOWED
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.pairs.product_tiles import LISTED, listed_within
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn import costs
from fastmetric.learn.kernel_sums.product_blocks import sums_by_products
from fastmetric.learn.kernel_sums.product_plan import ProductPlan
from fastmetric.learn.kernel_sums.sum_problem import SumProblem
from fastmetric.learn.kernel_sums.walk_ways import ExactWalk


class ProductSums:
    """All points, at distances out of products of matrices where their bound allows it [SUM-12].

    Queries at which it does not are summed by differences.
    """

    all_pairs: ClassVar[bool] = True
    method: ClassVar[str] = "exact"
    name = "products"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points and the queries."""
        self.problem, self.n_jobs = problem, n_jobs
        self.given_up = 0  # queries of the last sums that products could not certify

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return whether the kernel is Gaussian, and dimensions are many."""
        many = problem.rows.shape[1] >= costs.PRODUCT_DIMENSIONS
        return problem.rule.code == GAUSSIAN and many and not problem.options.flat

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether products take less than differences, as a few queries show."""
        if _are_few(problem):
            return False
        by_products, by_differences = ProductSums(problem, n_jobs)._counted()
        return by_products < by_differences

    def cost(self) -> float:
        """Return what sums over all pairs take, in nanoseconds: by products, if that is less."""
        if _are_few(self.problem):
            return ExactWalk(self.problem, self.n_jobs).cost()
        return min(self._counted())

    @cached_property
    def plan(self) -> ProductPlan:
        """Return the precision and the errors of the products."""
        return ProductPlan(self.problem, self.n_jobs)

    def log_sums(self, label: str | None = None, rule: Rule | None = None) -> np.ndarray:
        """Return the logs of the sums and of their bounds (3, m), up to rounding."""
        assert rule is None, "only compact kernels are summed by another rule"
        problem, found = self.problem, sums_by_products(self.plan, label)
        largest = float(problem.sums.any_weights.max())
        error = -math.log1p(-self.plan.charged)
        logs = found.logs() + (math.log(largest) + problem.sums.log_unit)
        out = np.array([logs, logs - error, logs + error])
        left = np.flatnonzero(found.given_up)
        self.given_up = len(left)
        if len(left):
            whole = problem if len(left) == len(logs) else problem.some(left)
            out[:, left] = ExactWalk(whole, self.n_jobs).log_sums(label)
        return out

    def _counted(self) -> tuple[float, float]:
        """Return what sums by products and by differences take; counted once for a problem."""
        if self.problem.dense_costs is None:
            self.problem.dense_costs = self._costs()
        return self.problem.dense_costs

    def _costs(self) -> tuple[float, float]:
        """Return what the sums by products and by differences take, in nanoseconds.

        As a few queries show: how many terms are added, and how many computed again.
        """
        (m, d), n, plan = self.problem.rows.shape, self.problem.n, self.plan
        table = costs.PRODUCTS if plan.dtype == np.float64 else costs.PRODUCTS_IN_FLOAT32
        exact = ExactWalk(self.problem, self.n_jobs).cost()
        if not plan.of_use:
            return math.inf, exact
        accuracy, (errors, t) = plan.accuracy, plan.probe()
        nearest = np.zeros(len(t)) if plan.includes_selves else t.min(axis=1)
        within = np.array([listed_within(accuracy, error) for error in errors])
        with np.errstate(invalid="ignore"):  # no point but duplicates, and no term to be listed
            listed = np.count_nonzero(t < (nearest + within)[:, None], axis=1) * (n / t.shape[1])
        added = np.count_nonzero(t <= (nearest + accuracy.reach)[:, None]) / t.size
        pair = d * table.product + (len(plan.slabs) - 1) * table.slab
        if plan.symmetric:
            pair = pair / 2 + added * table.turned
        pair += table.pair + added * table.kernel
        if not plan.includes_selves:
            pair += float(np.mean(within > 0)) * table.searched
        again = np.minimum(listed, LISTED).mean() * (table.listed + d * table.listed_difference)
        least = -math.log(UNDERFLOWED[self.problem.rows.dtype])
        underflowed = np.isfinite(nearest) & (nearest > least)
        exact += float(np.mean(underflowed)) * m * n * d * table.alone
        return m * (n * pair + float(again)) + float(np.mean(listed > LISTED)) * exact, exact


def _are_few(problem: SumProblem) -> bool:
    """Return whether points or queries are too few for products to be considered."""
    return min(problem.n, len(problem.rows)) < costs.PRODUCT_ROWS
