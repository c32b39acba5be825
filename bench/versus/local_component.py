"""LocalComponentAnalysis against NumPy, and at scale: the cases of `versus local`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bench.shared import new_process
from bench.shared.report import Row
from bench.shared.setup import clock, covertype, peak_memory, take_turns
from bench.sides import local_component as both
from fastmetric import LocalComponentAnalysis

_NU = 0.03  # of USPS, in squared grey values of -1 to 1
_LATER = 8  # iterations, after which little changes any more


class Plan(NamedTuple):
    """How large, and how often."""

    n: int  # of USPS
    repeats: int
    sizes: tuple[int, ...]  # of covertype
    held_out: int
    sweeps: int


FULL = Plan(
    n=7_291, repeats=5, sizes=(72_000, 144_000, 288_000, 576_012), held_out=5_000, sweeps=30
)
QUICK = Plan(n=1_500, repeats=3, sizes=(4_000, 8_000), held_out=500, sweeps=3)

# Of standardised columns, whose units are 0.001 to 0.1 of a deviation.
_COVERTYPE: dict[str, Any] = dict(
    nu=1e-3, batch_size=2_000, n_neighbors=3_000, discount=0.1, random_state=0
)


def iteration(plan: Plan) -> Iterator[Row]:
    """One iteration on USPS, from the start and from where little changes any more."""
    for done in (0, _LATER):
        double = partial(both.peer, both.usps(plan.n, _NU, done, "float64"))
        for dtype in ("float64", "float32"):
            one = both.usps(plan.n, _NU, done, dtype)
            compiling = clock(partial(both.ours, one)).best
            tasks = {"peer": partial(both.peer, one), "ours": partial(both.ours, one)}
            timings = take_turns(tasks | {"double": double}, plan.repeats)
            found, expected = timings["ours"].result, timings["peer"].result
            when = "start" if done == 0 else f"after {done} iterations"
            ratio = timings["double"].best / timings["ours"].best
            yield Row(
                "iteration",
                f"USPS n={plan.n:,} D=256 nu={_NU:g} {dtype}, {when}",
                peer_seconds=timings["peer"].best,
                our_seconds=timings["ours"].best,
                compile_seconds=compiling,
                our_error=float(np.abs(found - expected).max() / np.abs(expected).max()),
                note="the peer is blocked NumPy, a thread per core; error is the difference; "
                f"{ratio:.2f}x as fast as the peer in float64",
            )


def memory(plan: Plan) -> Iterator[Row]:
    """The peak of one iteration above the data, each side in a process of its own."""
    for dtype in ("float64", "float32"):
        peaks = {
            side: new_process.call(__name__, "peak", side=side, n=plan.n, dtype=dtype)
            for side in ("peer", "ours")
        }
        case = f"USPS n={plan.n:,} D=256 {dtype}"
        yield Row("memory", case, peer_peak=peaks["peer"], our_peak=peaks["ours"])


def peak(side: str, n: int, dtype: str) -> int | None:
    """Return the peak of memory of one iteration, in bytes above what was there."""
    task = {"peer": both.peer, "ours": both.ours}[side]
    task(both.usps(200, _NU, 0, dtype))
    return peak_memory(partial(task, both.usps(n, _NU, 0, dtype)))


def stochastic(plan: Plan) -> Iterator[Row]:
    """Covertype by batches: seconds per sweep, and until held-out rows are predicted well."""
    held_out = plan.held_out
    X = covertype(max(plan.sizes) + held_out, 10)[0]
    test, rows = X[:held_out], X[held_out:]
    _sweeps(rows[:2_000], 1)  # compiled
    for n in plan.sizes:
        seconds = clock(partial(_sweeps, rows[:n], 2)).best / 2
        yield Row(
            "stochastic",
            f"covertype n={n:,} D=10, a sweep",
            our_seconds=seconds,
            note=f"{seconds / n * 1e6:.2f} s per million rows",
        )
    yield _until_converged(rows, test, plan.sweeps)


def _sweeps(rows: np.ndarray, sweeps: int) -> LocalComponentAnalysis:
    """Return the estimator after so many sweeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LocalComponentAnalysis(max_iter=sweeps, tol=0.0, **_COVERTYPE).fit(rows)


def _until_converged(rows: np.ndarray, test: np.ndarray, sweeps: int) -> Row:
    """Return when a fit came within 0.05 nats of the likelihood it has after all sweeps."""
    final = _sweeps(rows, sweeps).score(test)
    for few in (2, 4, 8, 12, 16, 24, sweeps):
        began = time.perf_counter()
        fitted = _sweeps(rows, few)
        seconds = time.perf_counter() - began
        value = fitted.score(test)
        if value > final - 0.05:
            break
    return Row(
        "stochastic",
        f"covertype n={len(rows):,} D=10, to 0.05 nats",
        our_seconds=seconds,
        note=f"nu={_COVERTYPE['nu']:g}, {few} sweeps: {value:.3f} nats on {len(test):,} held-out "
        f"rows, {final:.3f} after {sweeps}",
    )


CASES = {"iteration": iteration, "memory": memory, "stochastic": stochastic}
