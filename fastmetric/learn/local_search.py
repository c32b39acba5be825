"""How many directions are local: a search over their number ("Red" in the paper).

EM lets go of local directions too late, and hardly ever takes one back. So some are handed to
the Gaussian part by force, and EM goes on from there; the likelihood decides how many.
"""

from __future__ import annotations

from collections.abc import Callable

from fastmetric.learn.local_em import Outcome, Problem, Step, maximise

_TRIAL = 40  # iterations of every trial


def search(
    problem: Problem,
    max_iter: int,
    tol: float,
    on_step: Callable[[int, Step], None] | None = None,
) -> Outcome:
    """Run EM, try other numbers of local directions, and run EM from the best to convergence.

    From as many as EM leaves the number goes down, and up again, by steps that are halved: half
    of them, a quarter, and so on. The directions kept are those of largest variance in total
    for their local variance. The history is that of the first trial and of the last run.
    """
    first = maximise(problem, problem.start(), min(_TRIAL, max_iter), tol, on_step)
    if first.interrupted or first.last.model.q == 0:
        return first
    trials = {first.last.model.q: first.last}
    best = most = first.last.model.q
    try:
        step = max(1, most // 2)
        while step:
            for q in (best - step, best + step):
                if 0 <= q < most and q not in trials:
                    trials[q] = _trial(problem, first.last, q, min(_TRIAL, max_iter), tol)
            better = max(trials, key=lambda q: trials[q].objective)
            if better == best:
                step //= 2
            best = better
    except KeyboardInterrupt:
        return first._replace(interrupted=True)
    final = maximise(problem, trials[best].model, max_iter, tol, on_step)
    lasting = [step._replace(seconds=step.seconds + first.last.seconds) for step in final.steps]
    return final._replace(steps=first.steps + lasting)


def _trial(problem: Problem, start: Step, q: int, max_iter: int, tol: float) -> Step:
    """Return where EM gets from `start` with no more than q local directions to begin with."""
    model = problem.model_from(start.model.covariance, q)
    return maximise(problem, model, max_iter, tol).last
