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
    for their local variance. The steps are those of the best trial and of the run from there.
    """
    trial = min(_TRIAL, max_iter)
    first = maximise(problem, problem.start(), trial, tol, on_step)
    if first.interrupted:
        return first
    best = most = first.model.q
    trials = {most: first}
    step = (most + 1) // 2
    try:
        while step:
            for q in (best - step, best + step):
                if 0 <= q < most and q not in trials:
                    start = problem.model_from(first.model.covariance, q)
                    trials[q] = maximise(problem, start, trial, tol)
                    if trials[q].interrupted:
                        raise KeyboardInterrupt
            before, best = best, max(trials, key=lambda q: trials[q].last.objective)
            step = step // 2 if best == before else step
        final = maximise(problem, trials[best].model, max_iter, tol, on_step)
    except KeyboardInterrupt:
        return trials[best]._replace(converged=False, interrupted=True)
    later = [one._replace(seconds=one.seconds + first.last.seconds) for one in final.steps[1:]]
    return final._replace(steps=trials[best].steps + later)
