"""Which way a sum is computed: one protocol of ways, and one rule that chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar


class Way(Protocol):
    """One way to compute the sums of a problem; the problem is data and says what is summed."""

    all_pairs: ClassVar[bool]  # every pair is visited; else a structure leaves pairs out

    @property
    def name(self) -> str:
        """Return the name that messages use."""

    def __init__(self, problem: Any, n_jobs: int | None = None) -> None:
        """Build what the sums of the problem need."""

    @staticmethod
    def serves(problem: Any) -> bool:
        """Return whether the way can compute this: by kernel, dimension, queries and rounding."""

    @staticmethod
    def worth_building(problem: Any, n_jobs: int | None = None) -> bool:
        """Return whether the way may save more than building it and counting its work take."""

    def cost(self) -> float:
        """Return what the sums that are asked for will take, in nanoseconds of `learn.costs`."""


W = TypeVar("W", bound=Way)


def choose(
    problem: Any, ways: Sequence[type[W]], method: str = "auto", n_jobs: int | None = None
) -> W:
    """Return the way that sums for a problem; the only place where "auto" is decided for sums.

    `ways` are those of one question, the preferred ones first; the last one visits all pairs,
    serves every problem and is always worth building. Ways that do not serve the problem are left
    out. Of the others, the first that is not over all pairs is the structure.

    * "tree": the structure; all pairs if there is none.
    * "auto": the structure, if it is worth building and its cost, mostly counted on a few queries,
      is below that of the first way over all pairs. Else all pairs.
    * "exact": all pairs, by the first such way that is worth building.

    The rule looks at the problem only, never at a clock: the choice, and so the last bits, are the
    same in every run. Costs and sizes are those of `learn.costs`. The questions and their ways:

    * sums over classes and their gradient, for NCA and the E-step by differences:
      `pair_sums.ways.WAYS`;
    * log sums of a density, and steps of mean shift: `kernel_sums.walk_ways.WAYS`;
    * the E-step of Local Component Analysis: `local_component.e_step.WAYS`.

    Not sums, and so decided where they arise, by `cheaper` and the same table: neighbours by trees
    or products (`nearest_neighbours`), and which local Gaussians a query of Manifold Parzen
    Windows leaves out (`manifold.gaussian_tree`, `manifold.marginal_screening`).
    """
    serving = [way for way in ways if way.serves(problem)]
    dense = [way for way in serving if way.all_pairs]
    structure = next((way for way in serving if not way.all_pairs), None)
    if structure is not None and method != "exact":
        if method == "tree":
            return structure(problem, n_jobs)
        if structure.worth_building(problem, n_jobs):
            candidate = structure(problem, n_jobs)
            if cheaper(candidate.cost(), dense[0](problem, n_jobs).cost()):
                return candidate
    return next(way for way in dense if way.worth_building(problem, n_jobs))(problem, n_jobs)


def cheaper(candidate: float, dense: float) -> bool:
    """Return whether the candidate's cost is below that of all pairs."""
    return bool(candidate < dense)
