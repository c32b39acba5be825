"""KernelDensity against mlpack, scikit-learn and SciPy: the cases of `versus kde`.

All sides begin with plain arrays: their seconds include their trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.shared.report import Row
from bench.shared.setup import Timing, clock, take_turns
from bench.sides import kernel_density as both
from bench.sides.kernel_density import Problem, Truth

_RTOL = 1e-2


class Plan(NamedTuple):
    """How large, and how often. `dims` are numbers of columns."""

    n: int  # of covertype
    repeats: int  # of ours, and of peers that take seconds
    mlpack_dims: tuple[int, ...]
    low_dims: tuple[int, ...]
    sklearn_queries: int
    rtols: tuple[float, float]
    growth_rows: tuple[int, int]
    exact: tuple[int, int]  # points and dimensions
    tails: tuple[int, int]
    tail_widths: tuple[float, ...]


FULL = Plan(
    n=100_000,
    repeats=3,
    mlpack_dims=(2, 3, 5, 10),
    low_dims=(2, 3),
    sklearn_queries=2_000,
    rtols=(1e-2, 1e-4),
    growth_rows=(100_000, 580_000),
    exact=(20_000, 3),
    tails=(3_000, 10),
    tail_widths=(0.2, 0.05),
)
QUICK = FULL._replace(
    n=5_000,
    repeats=2,
    mlpack_dims=(2, 3, 10),
    sklearn_queries=500,
    growth_rows=(5_000, 20_000),
    exact=(2_000, 3),
)


# Against mlpack


def mlpack(plan: Plan) -> Iterator[Row]:
    """Every point of covertype a query, within 1 %; mlpack, which takes minutes, runs once."""
    missing = both.missing_mlpack()
    for d in plan.mlpack_dims:
        problem = both.covertype_problem(plan.n, d)
        compiling = clock(partial(both.load_code, problem)).best
        tasks = {"ours": partial(both.ours, problem, _RTOL)}
        if not missing:
            tasks = {"peer": partial(both.mlpack, problem, _RTOL)} | tasks
            both.mlpack(_few(problem), _RTOL)
        timings = take_turns(tasks, plan.repeats, once=("peer",))
        row = _row("mlpack", f"covertype {problem} rtol={_RTOL:g}", Truth(problem), timings)
        row.compile_seconds = compiling
        row.note = missing or "mlpack has one thread and ran once"
        yield row


# Against scikit-learn


def sklearn(plan: Plan) -> Iterator[Row]:
    """Some points of covertype as queries, within 1 %, and from there all of them."""
    for d in plan.low_dims:
        every = both.covertype_problem(plan.n, d)
        some = every._replace(queries=every.X[: plan.sklearn_queries])  # the rows are shuffled
        compiling = clock(partial(both.load_code, every)).best
        fitting = take_turns({"peer": partial(both.sklearn_fit, every, _RTOL)}, plan.repeats)
        tasks: dict[str, Callable[[], Any]] = {"peer": partial(both.sklearn, some, _RTOL)}
        tasks |= {"ours": partial(both.ours, some, _RTOL)}
        tasks |= {"every": partial(both.ours, every, _RTOL)}
        timings = take_turns(tasks, plan.repeats, once=("peer",))
        row = _row("scikit-learn", f"covertype {some} rtol={_RTOL:g}", Truth(some), timings)
        row.compile_seconds, row.note = compiling, "scikit-learn has one thread and ran once"
        yield row
        yield _row_of_every_query(every, row, fitting["peer"].best, timings["every"])


def _row_of_every_query(every: Problem, some: Row, fit_seconds: float, ours: Timing) -> Row:
    """Return our time for all queries, and scikit-learn's as it follows from some of them."""
    assert some.peer_seconds is not None
    share = len(every.queries) / some.details["queries"]
    querying = max(some.peer_seconds - fit_seconds, 0.0)
    return Row(
        "scikit-learn",
        f"covertype {every} rtol={_RTOL:g}",
        peer_seconds=fit_seconds + share * querying,
        our_seconds=ours.best,
        our_error=Truth(every).error(ours.result),
        note=f"the peer's seconds computed: its tree, and {share:g} times its queries above",
        details={"peer_fit_seconds": fit_seconds, "our_all_seconds": ours.seconds},
    )


# Ours alone


def tolerance(plan: Plan) -> Iterator[Row]:
    """What a hundredth of the tolerance costs."""
    for d in plan.low_dims:
        problem = both.covertype_problem(plan.n, d)
        compiling = clock(partial(both.load_code, problem)).best
        tasks = {rtol: partial(both.ours, problem, rtol) for rtol in plan.rtols}
        timings = take_turns(tasks, plan.repeats)
        truth, first = Truth(problem), plan.rtols[0]
        for rtol in plan.rtols:
            row = _our_row("tolerance", problem, rtol, truth, timings[rtol])
            row.compile_seconds = compiling
            if rtol != first:
                times = row.details["times"] = timings[rtol].best / timings[first].best
                row.note = f"{times:.2f} times the seconds of rtol={first:g}"
            yield row


def growth(plan: Plan) -> Iterator[Row]:
    """How the time grows with the number of points, the width falling by the rule."""
    for d in plan.low_dims:
        problems = {n: both.covertype_problem(n, d) for n in plan.growth_rows}
        few, many = plan.growth_rows
        compiling = clock(partial(both.load_code, problems[few])).best
        tasks = {n: partial(both.ours, problem, _RTOL) for n, problem in problems.items()}
        timings = take_turns(tasks, plan.repeats)
        for n, problem in problems.items():
            row = _our_row("growth", problem, _RTOL, Truth(problem), timings[n])
            row.compile_seconds = compiling
            if n == many:
                times = timings[many].best / timings[few].best
                power = row.details["power"] = math.log(times) / math.log(many / few)
                row.note = f"grows as n^{power:.2f} from n={few:,}"
            yield row


def _our_row(case: str, problem: Problem, rtol: float, truth: Truth, ours: Timing) -> Row:
    """Return our time and error."""
    return Row(
        case,
        f"covertype {problem} rtol={rtol:g}",
        our_seconds=ours.best,
        our_error=truth.error(ours.result),
        details={"our_all_seconds": ours.seconds, "rtol": rtol},
    )


# Without a tolerance


def exact(plan: Plan) -> Iterator[Row]:
    """Standard normal points without a tolerance, on both sides all pairs that matter."""
    problem = both.normal_problem(*plan.exact)
    compiling = clock(partial(both.load_code, problem)).best
    sides: dict[str, Callable[[Problem], np.ndarray]] = {"peer": both.sklearn, "ours": both.ours}
    timings = take_turns(_tasks(sides, problem), plan.repeats, once=("peer",))
    row = _row("exact", f"normal {problem} rtol=0", Truth(problem), timings)
    row.compile_seconds, row.note = compiling, "the peer is scikit-learn; it ran once"
    yield row
    yield _scipy_row(problem, plan.repeats)


def _scipy_row(problem: Problem, repeats: int) -> Row:
    """Return SciPy's estimator and ours with the covariance that SciPy chooses."""
    covariance = both.scipy_covariance(problem)
    few = _few(problem)
    both.scipy(few), both.our_covariance(few, covariance)
    tasks = {
        "peer": partial(both.scipy, problem),
        "ours": partial(both.our_covariance, problem, covariance),
    }
    timings = take_turns(tasks, repeats, once=("peer",))
    # In the coordinates in which that covariance is 1.
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, problem.X.T).T
    truth = Truth(Problem(white, white, 1.0))
    truth.log_density -= np.log(np.diag(root)).sum()
    row = _row("exact", f"normal {problem} rtol=0", truth, timings)
    row.note = "the peer is SciPy; it ran once; h² times the covariance of the points"
    return row


# In the tails


def tails(plan: Plan) -> Iterator[Row]:
    """Errors, not times: at new points between narrow Gaussians nearly every term underflows."""
    n, d = plan.tails
    rng = np.random.default_rng(0)
    X, queries = rng.standard_normal((n, d)), rng.standard_normal((both.SAMPLE, d))
    missing = both.missing_mlpack()
    for h in plan.tail_widths:
        problem = Problem(X, queries, h)
        truth, ours = Truth(problem), both.ours(problem)
        relative = float(np.max(np.abs(ours[truth.sample] / truth.log_density - 1)))
        for name, side in {"scikit-learn": both.sklearn, "mlpack": both.mlpack}.items():
            row = Row("tails", f"normal {problem} rtol=0", our_error=truth.error(ours))
            row.details = {"our_relative_error": relative}
            if name == "mlpack" and missing:
                row.note = missing
            else:
                peers = side(problem)
                row.peer_error = truth.error(peers)
                zeros = row.details["peer_zeros"] = int(np.isneginf(peers).sum())
                row.note = f"the peer is {name}; its density is 0 at {zeros:,} queries"
            row.note += f"; our error relative to the log density {relative:.1e}"
            yield row


# What the cases share


def _few(problem: Problem) -> Problem:
    """Return a few points, each a query, to wake a peer up."""
    return Problem(problem.X[:500], problem.X[:500], problem.h)


def _tasks(
    sides: dict[str, Callable[[Problem], np.ndarray]], problem: Problem
) -> dict[str, Callable[[], np.ndarray]]:
    """Return the sides as tasks, each run once on a few points."""
    for side in sides.values():
        side(_few(problem))
    return {name: partial(side, problem) for name, side in sides.items()}


def _row(case: str, sizes: str, truth: Truth, timings: dict[str, Timing]) -> Row:
    """Return times and errors of "ours" and, if it took part, of the "peer"."""
    ours, peer = timings["ours"], timings.get("peer")
    row = Row(case, sizes, our_seconds=ours.best, our_error=truth.error(ours.result))
    row.details = {"our_all_seconds": ours.seconds, "queries": len(ours.result)}
    if peer is not None:
        row.peer_seconds, row.peer_error = peer.best, truth.error(peer.result)
        row.details["peer_all_seconds"] = peer.seconds
    return row


CASES = {
    "mlpack": mlpack,
    "scikit-learn": sklearn,
    "tolerance": tolerance,
    "growth": growth,
    "exact": exact,
    "tails": tails,
}
