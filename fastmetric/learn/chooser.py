"""Which way a sum is computed: one protocol of ways, and one rule that chooses among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar


class Way(Protocol):
    """One way to compute the sums of a problem; the problem is data and says what is summed."""

    all_pairs: ClassVar[bool]  # every pair is visited; else a structure leaves pairs out
    method: ClassVar[str]  # "exact", "tree" or "grid": what users call it

    @property
    def name(self) -> str:
        """Return the name that messages use."""

    def __init__(self, problem: Any, n_jobs: int | None = None) -> None:
        """Build what the sums of the problem need."""

    @staticmethod
    def serves(problem: Any) -> bool:
        """Return whether the way can compute this: by kernel, dimension, queries and rounding."""

    @staticmethod
    def worth_building(problem: Any, n_jobs: int | None = None, best: float = math.inf) -> bool:
        """Return whether the way may save more than building it and counting its work take.

        `best` is the cost of the best structure so far, in nanoseconds.
        """

    def cost(self) -> float:
        """Return what the sums that are asked for will take, in nanoseconds of `learn.costs`."""


W = TypeVar("W", bound=Way)


def choose(
    problem: Any, ways: Sequence[type[W]], method: str = "auto", n_jobs: int | None = None
) -> W:
    """Return the way that sums for a problem; the only place where "auto" is decided for sums.

    `ways` are those of one question, the preferred ones first; the last one visits all pairs,
    serves every problem and is always worth building. Ways that do not serve the problem are left
    out. Of those that are not over all pairs, the structures, the first of every method counts.

    * "tree", "grid": the structure of this method; all pairs if there is none.
    * "auto": of the structures that are worth building, that of the least cost, mostly counted on
      a few queries, if it is below the cost of the first way over all pairs. Else all pairs.
    * "exact": all pairs, by the first such way that is worth building.

    The rule looks at the problem only, never at a clock: the choice, and so the last bits, are the
    same in every run. Costs and sizes are those of `learn.costs`. The questions and their ways:

    * sums over classes and their gradient, for NCA and the E-step by differences:
      `pair_sums.ways.WAYS`;
    * log sums of a density, and steps of mean shift: `kernel_sums.log_sums.WAYS`;
    * the E-step of Local Component Analysis: `local_component.e_step.WAYS`.

    Not sums, and so decided where they arise, by `cheaper` and the same table: neighbours by trees
    or products (`nearest_neighbours`), and which local Gaussians a query of Manifold Parzen
    Windows leaves out (`manifold.gaussian_tree`, `manifold.marginal_screening`).
    """
    serving = [way for way in ways if way.serves(problem)]
    dense = [way for way in serving if way.all_pairs]
    structures: dict[str, type[W]] = {}
    for way in serving:
        if not way.all_pairs:
            structures.setdefault(way.method, way)
    if method in structures:
        return structures[method](problem, n_jobs)
    if method == "auto":
        best, least = None, math.inf
        for structure in structures.values():
            if structure.worth_building(problem, n_jobs, least):
                candidate = structure(problem, n_jobs)
                cost = candidate.cost()
                if cheaper(cost, least):
                    best, least = candidate, cost
        if best is not None and cheaper(least, dense[0](problem, n_jobs).cost()):
            return best
    return next(way for way in dense if way.worth_building(problem, n_jobs))(problem, n_jobs)


def cheaper(candidate: float, dense: float) -> bool:
    """Return whether the candidate's cost is below that of another way."""
    return bool(candidate < dense)
