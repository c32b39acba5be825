"""Latent Coincidence Analysis: L-BFGS, EM, pairs seen once. The cases of `versus coincidence`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.shared.report import Row
from bench.shared.setup import all_rows, clock
from fastmetric import LatentCoincidenceAnalysis
from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence.impostors import ActiveSet, target_neighbors
from fastmetric.learn.coincidence.likelihood import START_NOISE, Coincidence
from fastmetric.learn.optim.outcome import Recorder
from fastmetric.learn.rows import ArrayRows


class Plan(NamedTuple):
    """How many rows of letter, how many steps of EM, and how often."""

    n: int
    steps: int
    repeats: int


FULL = Plan(n=14_000, steps=500, repeats=3)
QUICK = Plan(n=3_000, steps=100, repeats=1)


def solver(plan: Plan) -> Iterator[Row]:
    """The pairs of the first round on letter: the seconds to the likelihood that EM ends at."""
    problem, W, noise = _problem(plan.n)
    compiling = clock(lambda: solvers.by_em(problem, W, noise, max_iter=1, tol=0.0)).best
    em_runs, our_runs = [], []
    for _ in range(plan.repeats):
        recorder = Recorder[solvers.Model]()
        solvers.by_em(problem, W, noise, max_iter=plan.steps, tol=-1.0, recorder=recorder)
        em = recorder.history()
        goal = em["log_likelihood"][-1]
        recorder = Recorder[solvers.Model]()
        solvers.by_lbfgs(problem, W, noise, max_iter=plan.steps, tol=0.0, recorder=recorder)
        ours = recorder.history()
        reached = np.flatnonzero(ours["log_likelihood"] >= goal)
        if not len(reached):
            yield Row(
                "solver", note=f"L-BFGS ends at {ours['log_likelihood'][-1]:.6g} < {goal:.6g}"
            )
            return
        em_runs.append(em["seconds"][-1])
        our_runs.append(ours["seconds"][reached[0]])
    yield Row(
        "solver",
        f"letter n={plan.n:,} pairs={problem.n_pairs:,}",
        peer_seconds=min(em_runs),
        our_seconds=min(our_runs),
        compile_seconds=compiling,
        note=f"{plan.steps} steps of EM to {goal:.6g}; {reached[0]} of L-BFGS",
        details={"em_seconds": em_runs, "lbfgs_seconds": our_runs, "goal": float(goal)},
    )


def online(plan: Plan) -> Iterator[Row]:
    """The same pairs with kappa = 1: L-BFGS on all of them, and one pass of `partial_fit_pairs`."""
    problem, _, _ = _problem(plan.n)
    X = problem.X.resident()
    pairs = np.column_stack([problem.pairs.firsts, problem.pairs.seconds])
    signs = np.where(problem.pairs.coincide, 1, -1)
    together = Coincidence(problem.X, problem.pairs, np.ones(len(X)))
    start = together.scaled(np.eye(X.shape[1]), START_NOISE / X.shape[1])

    def mean(W: np.ndarray, noise: float) -> float:
        return together.log_likelihood(W, noise) / len(signs)

    def learnt(way: str) -> tuple[float, float]:
        model = LatentCoincidenceAnalysis(random_state=0)
        run = clock(lambda: getattr(model, way)(pairs, signs, X=X))
        return run.best, mean(model.components_, model.noise_variance_)

    compiling = clock(lambda: learnt("partial_fit_pairs")).best
    runs = [(learnt("fit_pairs"), learnt("partial_fit_pairs")) for _ in range(plan.repeats)]
    _, goal = runs[0][0]
    _, reached = runs[0][1]
    yield Row(
        "online",
        f"letter n={plan.n:,} pairs={problem.n_pairs:,}",
        peer_seconds=min(run[0][0] for run in runs),
        our_seconds=min(run[1][0] for run in runs),
        compile_seconds=compiling,
        note=f"mean log-likelihood {mean(start, START_NOISE / X.shape[1]):.4f} at the start, "
        f"{goal:.4f} by fit_pairs, {reached:.4f} after one pass",
        details={"fit_pairs": goal, "one_pass": reached},
    )


def _problem(n: int) -> tuple[Coincidence, np.ndarray, float]:
    """Return targets and impostors of n random rows of letter at the start of a fit."""
    X, y = all_rows("letter")
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    X, y = X[chosen], y[chosen]
    active = ActiveSet(y, target_neighbors(ArrayRows(X, None), y, 3), None)
    reach = active.reach(X)
    active.refresh(X, reach)
    kappa_sq = np.where(active.active, reach, 1.0)
    noise = START_NOISE * float(np.median(reach[active.active])) / X.shape[1]
    problem, W = Coincidence(ArrayRows(X), active.pairs(), kappa_sq), np.eye(X.shape[1])
    problem.search_scales(W, noise)
    return problem, W, noise


CASES = {"solver": solver, "online": online}
