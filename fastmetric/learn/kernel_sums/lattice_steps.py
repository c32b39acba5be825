"""Steps of mean shift from a lattice, which serves all of them: the density is fixed."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from fastmetric.core.lattice.reading import intervals
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.lattice_sums import LatticeSums
from fastmetric.learn.kernel_sums.sum_problem import Shifted, SteppingWay, SumProblem
from fastmetric.learn.kernel_sums.walk_ways import WALKS

# Of the lattice, if not less is asked for: six digits cost half as much again as two, and steps
# that are as accurate end where few exact ones remain.
_RTOL = 1e-6


class LatticeSteps:
    """Steps by the slopes of a lattice [GRD-5], over walks where it has no certificate.

    A mode is within d bandwidths of points, root mean square, so that its sum is at least exp(-d /
    2) of the least weight: there the plan of the lattice serves always.
    """

    all_pairs: ClassVar[bool] = False
    method: ClassVar[str] = "grid"
    name = "grid"

    def __init__(self, problem: SumProblem, n_jobs: int | None = None) -> None:
        """Take the points, and queries whose box the trajectories stay in, or near it."""
        self.problem, self.n_jobs = problem, n_jobs
        self._rtol = min(problem.rule.rtol, _RTOL)
        self._over = LatticeSums(problem.within(self._rtol), n_jobs)

    @property
    def rtol(self) -> float:
        """Return the tolerance of the lattice."""
        return self._rtol

    @staticmethod
    def serves(problem: SumProblem) -> bool:
        """Return whether a lattice serves."""
        return LatticeSums.serves(problem)

    @staticmethod
    def worth_building(
        problem: SumProblem, n_jobs: int | None = None, best: float = math.inf
    ) -> bool:
        """Return whether points and queries are many."""
        return LatticeSums.worth_building(problem, n_jobs, best)

    def cost(self) -> float:
        """Return what the sums will take, in nanoseconds, with the lattice made for them alone."""
        return self._over.cost()

    def at(self, query: np.ndarray) -> LatticeSteps:
        """Return the steps at other queries, from the same lattice."""
        moved = LatticeSteps.__new__(LatticeSteps)
        moved.problem, moved.n_jobs = self.problem.at(query), self.n_jobs
        moved._rtol, moved._over = self._rtol, self._over
        return moved

    def mean_shift(self, label: str | None = None) -> Shifted:
        """Return log sums and steps of mean shift [SHI-1], gradients of these sums."""
        problem, sums, rows = self.problem, self.problem.sums, self.problem.rows
        if self._over.fit is None:
            return choose(problem, WALKS, n_jobs=self.n_jobs).mean_shift(label)
        lattice, values, _ = self._over.smoothed(self._over.fit, label)
        found = lattice.read_slopes(values, rows, lattice.sorting(rows), label)
        margins = lattice.margins(problem.n, sums.total, False)
        value, slopes = found[0], found[1:]
        lower, upper = intervals(np.stack([value, np.zeros(len(value))]), margins)
        accepted = (lower > 0) & (upper - lower <= 2 * problem.rule.rtol * lower)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log((lower + upper) / 2)
            steps = (slopes / (-(lattice.plan.sigma**2) * value)).T
        left = np.flatnonzero(~accepted)
        if left.size:
            walked = choose(problem.some(left), WALKS, n_jobs=self.n_jobs).mean_shift(label)
            logs[left], steps[left] = walked.logs, walked.steps
        return Shifted(logs, steps)


STEPPING_WAYS: tuple[type[SteppingWay], ...] = (LatticeSteps, *WALKS)
