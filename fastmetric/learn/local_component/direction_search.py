"""How many directions are local: a search over their number ("Red" in the paper).

EM lets go of local directions too late, and hardly ever takes one back. So some are handed to
the Gaussian part by force, and EM goes on from there; the likelihood decides how many.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fastmetric.learn.local_component.covariance_model import LocalModel
from fastmetric.learn.local_component.em import Outcome, Problem, Step, maximise

_TRIAL = 40  # iterations of every trial

OnStep = Callable[[int, Step], None] | None


def search(
    problem: Problem,
    max_iter: int,
    tol: float,
    on_step: OnStep = None,
) -> Outcome:
    """Run EM, try other numbers of local directions, and run EM from the best to convergence.

    From as many as EM leaves the number goes down, and up again, by steps that are halved: half
    of them, a quarter, and so on. The directions kept are those of largest variance in total
    for their local variance. The steps are those of the best trial and of the run from there.
    """
    began = time.perf_counter()

    def run(start: LocalModel, max_iter: int, on_step: OnStep = None) -> Outcome:
        before = time.perf_counter() - began
        outcome = maximise(problem, start, max_iter, tol, on_step)
        steps = [one._replace(seconds=before + one.seconds) for one in outcome.steps]
        return outcome._replace(steps=steps)

    trial = min(_TRIAL, max_iter)
    first = run(problem.start(), trial, on_step)
    if first.interrupted:
        return first
    best = most = first.model.q
    trials = {most: first}
    step = (most + 1) // 2
    try:
        while step:
            for q in (best - step, best + step):
                if 0 <= q < most and q not in trials:
                    trials[q] = run(problem.model_from(first.model.covariance, q), trial)
                    if trials[q].interrupted:
                        raise KeyboardInterrupt
            before, best = best, max(trials, key=lambda q: trials[q].last.objective)
            step = step // 2 if best == before else step
        kept = trials[best]
        left = max_iter - (len(kept.steps) - 1)
        if kept.converged or kept.collapsed or not left:
            return kept
        final = run(kept.model, left, on_step)
    except KeyboardInterrupt:
        return trials[best]._replace(converged=False, interrupted=True)
    return final._replace(steps=kept.steps + final.steps[1:])
