"""Early stopping: the mean P of rows held out, for every map of a run."""

from __future__ import annotations

import numpy as np

from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.nca.training import LearntMap
from fastmetric.learn.optim.outcome import Iterate, Outcome
from fastmetric.learn.rows import Rows

_PATIENCE = 10  # iterations without a better score


class Validation:
    """Scores the maps of a run by the mean P of held-out rows, and keeps the best."""

    def __init__(self, problem: Objective, X: Rows, y: np.ndarray) -> None:
        """Take the rows held out (m, D), and their class numbers (m,) in the problem."""
        self.problem, self.X, self.y = problem, X, y
        self.scores: list[float] = []  # of the start and of every iteration
        self.best: Iterate[LearntMap] | None = None

    def score(self, A: np.ndarray, beta: float | None = None) -> float:
        """Return the mean P of the rows held out under a map."""
        problem = self.problem
        query = self.X.project(problem.center, A.astype(self.X.dtype))
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
        return total / len(self.y)

    def is_over(self, iterate: Iterate[LearntMap]) -> bool:
        """Score an iterate, and return whether the best score is `_PATIENCE` iterations old."""
        found = self.score(iterate.model.A, iterate.model.beta)
        if self.best is None or found > max(self.scores):
            self.best = iterate
        self.scores.append(found)
        return len(self.scores) - int(np.argmax(self.scores)) > _PATIENCE

    def history(self, outcome: Outcome) -> np.ndarray:
        """Return the scores of all iterates; NaN for a last one that Ctrl-C left without."""
        scores = np.full(len(outcome.figures), np.nan)
        scores[: len(self.scores)] = self.scores
        return scores
