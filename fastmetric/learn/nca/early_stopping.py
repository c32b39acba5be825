"""Early stopping: rows held out, and how well a map does on them."""

from __future__ import annotations

import numpy as np

from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.optim.lbfgs import Outcome, Step
from fastmetric.learn.rows import project

_PATIENCE = 10  # iterations without a better score


def hold_out(
    rows: np.ndarray, y: np.ndarray, fraction: float, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from and those held out, the same share of every class.

    Of each class at least one row is learnt from; at least one row is held out if any class has
    two.
    """
    shuffled = rows[rng.permutation(len(rows))]
    _, numbers, sizes = np.unique(y[shuffled], return_inverse=True, return_counts=True)
    by_class = np.argsort(numbers, kind="stable")
    rank = np.empty(len(rows), np.intp)  # among the rows of the class
    rank[by_class] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.minimum(np.floor(fraction * sizes + 0.5), sizes - 1)
    if not wanted.any() and sizes.max() > 1:
        wanted[sizes.argmax()] = 1
    held_out = rank < wanted[numbers]
    return np.sort(shuffled[~held_out]), np.sort(shuffled[held_out])


class Validation:
    """Judges the maps of a run by the mean P of rows that it does not see."""

    def __init__(self, problem: Objective, X: np.ndarray, y: np.ndarray) -> None:
        """Take the rows held out (m, D), and their class numbers (m,) in the problem."""
        self.problem, self.X, self.y = problem, X, y
        self.scores: list[float] = []  # of the start and of every iteration

    def judge(self, A: np.ndarray, beta: float | None = None) -> None:
        """Keep the score of a map."""
        problem = self.problem
        query = project(self.X, problem.center, A.astype(self.X.dtype), problem.n_jobs)
        offsets = problem.classes.offsets
        posterior = Posterior(
            problem.project(A),
            offsets,
            problem.mixture.sharing(beta, len(offsets) - 1),
            method=problem.method,
            rtol=problem.rtol,
            n_jobs=problem.n_jobs,
        )
        total = sum(
            float(found[np.arange(len(found)), self.y[rows]].sum())
            for rows, found in posterior(query)
        )
        self.scores.append(total / len(self.y))

    def is_over(self, step: Step) -> bool:
        """Judge a step, and return whether the best one is long past."""
        self.judge(step.A, step.beta)
        return len(self.scores) - int(np.argmax(self.scores)) > _PATIENCE

    def history(self, outcome: Outcome) -> np.ndarray:
        """Return the scores of all steps; NaN for a last one that Ctrl-C left without."""
        scores = np.full(len(outcome.steps), np.nan)
        scores[: len(self.scores)] = self.scores
        return scores

    def best(self, outcome: Outcome) -> Step:
        """Return the step of the largest score."""
        return outcome.steps[int(np.argmax(self.scores))]
