"""NCA against scikit-learn's NeighborhoodComponentsAnalysis: the cases of `versus nca`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import joblib
import numpy as np
from sklearn.decomposition import PCA

from bench.shared import new_process
from bench.shared.report import Row
from bench.shared.setup import (
    Problem,
    Timing,
    clock,
    peak_memory,
    random_map,
    random_normal,
    take_turns,
    training_rows,
)
from bench.sides import nca as both
from bench.versus.start import rows as start_rows


class Size(NamedTuple):
    """The shape of a problem: rows, features, dimensions projected to."""

    n: int
    D: int
    d: int

    def __str__(self) -> str:
        return f"n={self.n:,} D={self.D} d={self.d}"


class Plan(NamedTuple):
    """How large, and how often."""

    evaluation: tuple[Size, ...]
    evaluation_repeats: int
    fit_rows: int  # of USPS
    fit_iterations: int
    fit_repeats: int
    memory: tuple[Size, ...]
    rate_rows: tuple[int, int]  # of MNIST: few, many
    rate_repeats: int
    processes: int
    cold_start: bool  # compile everything anew once


FULL = Plan(
    evaluation=(Size(10_000, 50, 2), Size(5_000, 256, 32)),
    evaluation_repeats=5,
    fit_rows=7_291,
    fit_iterations=20,
    fit_repeats=3,
    memory=(Size(20_000, 50, 2), Size(20_000, 256, 32)),
    rate_rows=(10_000, 60_000),
    rate_repeats=2,
    processes=5,
    cold_start=True,
)
QUICK = Plan(
    evaluation=(Size(2_000, 50, 2), Size(1_000, 256, 32)),
    evaluation_repeats=3,
    fit_rows=1_000,
    fit_iterations=5,
    fit_repeats=2,
    memory=(Size(5_000, 50, 2),),
    rate_rows=(2_000, 10_000),
    rate_repeats=2,
    processes=1,
    cold_start=False,
)


# One evaluation


def value_and_gradient(plan: Plan) -> Iterator[Row]:
    """One evaluation on random normal data: the peer and we in float64, and we in float32."""
    for size in plan.evaluation:
        problem = random_normal(*size)
        ours = {"float64": problem, "float32": both.as_float32(problem)}
        compiling = {dtype: clock(partial(both.load_code, one)).best for dtype, one in ours.items()}
        timings = _evaluation_timings(problem, ours, plan.evaluation_repeats)
        peer_peak = _peak("peer", size)
        for dtype in ours:
            row = _evaluation_row(size, dtype, timings["peer"], timings[dtype])
            row.peer_peak, row.our_peak = peer_peak, _peak(dtype, size)
            row.compile_seconds = compiling[dtype]
            yield row


def _evaluation_timings(
    problem: Problem, ours: dict[str, Problem], repeats: int
) -> dict[str, Timing]:
    """Return the timings of the peer ("peer") and of each of ours, after the same warm-up."""
    mask = both.same_class(problem.y)
    tasks = {"peer": partial(both.peer_evaluation, problem, mask)}
    tasks |= {dtype: partial(both.our_evaluation, one) for dtype, one in ours.items()}
    take_turns(tasks, 1)
    return take_turns(tasks, repeats)


def _evaluation_row(size: Size, dtype: str, peer: Timing, ours: Timing) -> Row:
    """Return time and agreement of one evaluation."""
    (peer_value, peer_gradient), (value, gradient) = peer.result, ours.result
    return Row(
        "value+gradient",
        f"{size} {dtype}",
        peer_seconds=peer.best,
        our_seconds=ours.best,
        objective_difference=both.difference(value, peer_value),
        gradient_difference=both.difference(gradient, peer_gradient),
        pairs_per_second=_pairs(size.n) / ours.best,
        note="" if dtype == "float64" else "the peer in float64",
        details=_all_seconds(peer, ours) | {"peer_value": peer_value, "our_value": value},
    )


# A fit


def fit(plan: Plan) -> Iterator[Row]:
    """A fit to USPS from the same PCA start, the same number of iterations."""
    X, y = training_rows("usps")
    X, y = X[: plan.fit_rows], y[: plan.fit_rows]
    problem = Problem(PCA(5, svd_solver="full").fit(X).components_, X, y)
    compiling = clock(partial(both.load_code, problem)).best
    sides = {"peer": both.peer_fit, "ours": both.our_fit}
    take_turns({name: partial(side, problem, 1) for name, side in sides.items()}, 1)
    tasks = {name: partial(side, problem, plan.fit_iterations) for name, side in sides.items()}
    timings = take_turns(tasks, plan.fit_repeats)
    row = _fit_row(problem, timings["peer"], timings["ours"])
    row.compile_seconds = compiling
    yield row


def _fit_row(problem: Problem, peer: Timing, ours: Timing) -> Row:
    """Return time and agreement of a fit, both maps evaluated by the same function."""
    n, D = problem.X.shape
    values = {
        name: both.our_evaluation(problem._replace(A=side.result.components_))[0] / n
        for name, side in (("peer", peer), ("our", ours))
    }
    iterations, evaluations = ours.result.n_iter_, int(ours.result.history_["evaluations"][-1])
    components = both.difference(ours.result.components_, peer.result.components_)
    return Row(
        "fit",
        f"USPS {Size(n, D, len(problem.A))} float64",
        peer_seconds=peer.best,
        our_seconds=ours.best,
        objective_difference=both.difference(values["our"], values["peer"]),
        pairs_per_second=_pairs(n) * evaluations / ours.best,
        note=f"{iterations} iterations; objective {values['our']:.6f}, the peer's "
        f"{values['peer']:.6f}; components differ by {components:.1e}",
        details=_all_seconds(peer, ours)
        | {f"{name}_objective": value for name, value in values.items()}
        | {"our_evaluations": evaluations, "peer_evaluations": peer.result.evaluations}
        | {"components_difference": components},
    )


# Memory


def memory(plan: Plan) -> Iterator[Row]:
    """Peak of one of our evaluations where the peer's matrices would fill the machine."""
    for size in plan.memory:
        yield Row(
            "memory",
            f"{size} float64",
            peer_peak=both.PEER_BYTES_PER_PAIR * size.n**2,
            peer_peak_computed=True,
            our_peak=_peak("float64", size),
            note=f"peer not run: {both.PEER_BYTES_PER_PAIR} n² bytes, computed",
        )


def _peak(side: str, size: Size) -> int | None:
    """Return the peak memory of one evaluation above its data, in a new process."""
    return new_process.call(__name__, "evaluation_peak", side=side, size=size)


def evaluation_peak(side: str, size: list[int]) -> int | None:
    """Return the peak memory of one evaluation: "peer", or ours by its dtype."""
    problem = random_normal(*size)
    if side == "peer":
        both.warm_up_peer(problem)
        # The mask counts: the peer keeps it for as long as it fits.
        return peak_memory(lambda: both.peer_evaluation(problem, both.same_class(problem.y)))
    if side == "float32":
        problem = both.as_float32(problem)
    both.load_code(problem)
    return peak_memory(lambda: both.our_evaluation(problem))


# Rates


class _Setting(NamedTuple):
    """Rows and threads of one measurement."""

    n: int
    threads: int


def rate(plan: Plan) -> Iterator[Row]:
    """Pairs per second on MNIST: few rows against many, one thread against two and all."""
    few, many = plan.rate_rows
    cores = joblib.cpu_count()
    settings = [_Setting(few, cores)]
    settings += [_Setting(many, threads) for threads in sorted({1, min(2, cores), cores})]
    problems = _mnist(plan.rate_rows)
    tasks = {one: partial(both.our_evaluation, problems[one.n], one.threads) for one in settings}
    compiling = clock(partial(both.load_code, problems[few])).best
    take_turns(tasks, 1)
    timings = take_turns(tasks, plan.rate_repeats)
    rates = {one: _pairs(one.n) / timings[one].best for one in settings}
    for one in settings:
        yield Row(
            "rate",
            f"MNIST {Size(one.n, *problems[one.n].A.shape[::-1])} float64, threads={one.threads}",
            our_seconds=timings[one].best,
            pairs_per_second=rates[one],
            compile_seconds=compiling,
            note=_rate_note(rates, one, few_rows=settings[0], one_thread=settings[1]),
            details={"our_all_seconds": timings[one].seconds, "threads": one.threads},
        )


def _mnist(sizes: tuple[int, ...]) -> dict[int, Problem]:
    """Return random rows of MNIST, pixels from 0 to 1, by their number, with a random map."""
    X, y = training_rows("mnist")
    X /= 255
    order = np.random.default_rng(0).permutation(len(X))
    A = random_map(2, X.shape[1])
    return {n: Problem(A, X[order[:n]], y[order[:n]]) for n in sizes}


def _rate_note(
    rates: dict[_Setting, float], one: _Setting, few_rows: _Setting, one_thread: _Setting
) -> str:
    """Return how a rate stands to that of few rows and to that of one thread."""
    notes = []
    if one.n != few_rows.n and one.threads == few_rows.threads:
        notes.append(f"{rates[one] / rates[few_rows]:.2f} of the rate at n={few_rows.n:,}")
    if one.n == one_thread.n and one.threads != one_thread.threads:
        notes.append(f"{rates[one] / rates[one_thread]:.2f} of the rate of one thread")
    return "; ".join(notes)


def start(plan: Plan) -> Iterator[Row]:
    """What a new process pays: the import, and the first small fit."""
    return start_rows(plan.processes, plan.cold_start)


def _pairs(n: int) -> int:
    """Return the number of ordered pairs of different rows."""
    return n * (n - 1)


def _all_seconds(peer: Timing, ours: Timing) -> dict[str, list[float]]:
    """Return every run behind the best ones."""
    return {"peer_all_seconds": peer.seconds, "our_all_seconds": ours.seconds}


CASES = {
    "value+gradient": value_and_gradient,
    "fit": fit,
    "memory": memory,
    "rate": rate,
    "start": start,
}
