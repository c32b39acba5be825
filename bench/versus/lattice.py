"""Gaussian densities by a lattice, and exact ones by products: the cases of `versus lattice`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bench.shared.report import Row
from bench.shared.setup import Timing, take_turns
from bench.sides import gridded, kernel_density
from bench.sides.kernel_density import Problem, Truth
from fastmetric._typing import SumMethod

_RTOL = 1e-2
_METHODS: tuple[SumMethod, ...] = ("exact", "tree", "grid", "auto")


class Plan(NamedTuple):
    """How large, and how often."""

    rows: tuple[int, ...]  # of covertype
    repeats: int
    line: tuple[int, int]  # points in one dimension, and queries on a regular grid
    plane: tuple[int, int]  # in two dimensions, and queries along each axis
    growth_rows: tuple[int, ...]
    auto_rows: tuple[int, ...]
    products: tuple[tuple[int, int], ...]  # points and dimensions


FULL = Plan(
    rows=(100_000, 580_000),
    repeats=5,
    line=(10_000_000, 1024),
    plane=(1_000_000, 512),
    growth_rows=(100_000, 1_000_000, 10_000_000),
    auto_rows=(2_000, 20_000, 100_000),
    products=((20_000, 128), (20_000, 256), (10_000, 784)),
)
QUICK = FULL._replace(
    rows=(20_000,),
    repeats=2,
    line=(200_000, 1024),
    plane=(50_000, 128),
    growth_rows=(10_000, 100_000),
    auto_rows=(2_000,),
    products=((2_000, 128),),
)


def trees(plan: Plan) -> Iterator[Row]:
    """Every point of covertype a query, within 1 %; the peer is our tree."""
    for d in (2, 3):
        for n in plan.rows:
            problem = kernel_density.covertype_problem(n, d)
            tasks = {m: partial(gridded.ours, problem, _RTOL, m) for m in ("tree", "grid")}
            take_turns(tasks, 1)
            timings = take_turns(tasks, plan.repeats)
            row = _row("trees", problem, Truth(problem), timings["tree"], timings["grid"])
            row.note = f"{gridded.walked_share(problem, _RTOL):.2%} of the queries over the tree"
            yield row


def kdepy(plan: Plan) -> Iterator[Row]:
    """Points and a regular grid of queries; the peer is KDEpy's Fourier transform."""
    for (n, side), d, rtol in ((plan.line, 1, 1e-3), (plan.plane, 2, _RTOL)):
        X = np.random.default_rng(0).standard_normal((n, d))
        problem = gridded.on_a_grid(X, n ** (-1 / (d + 4)), side)
        tasks = {
            "peer": partial(gridded.kdepy, problem, side),
            "ours": partial(gridded.ours, problem, rtol),
        }
        take_turns(tasks, 1)
        timings = take_turns(tasks, plan.repeats)
        truth = Truth(problem)
        row = _row("kdepy", problem, truth, timings["peer"], timings["ours"], rtol)
        if d > 1:  # in one dimension KDEpy places its grid itself
            row.peer_error = truth.error(timings["peer"].result)
        yield row


def growth(plan: Plan) -> Iterator[Row]:
    """A fixed width, every point a query; the power of n from size to size."""
    before: tuple[int, float] | None = None
    for n in plan.growth_rows:
        X = np.random.default_rng(0).standard_normal((n, 2))
        task = partial(gridded.ours, Problem(X, X, 0.1), _RTOL, "grid")
        take_turns({"ours": task}, 1)
        seconds = take_turns({"ours": task}, 3)["ours"].best
        row = Row("growth", f"normal n={n:,} d=2 h=0.1 rtol={_RTOL:g}", our_seconds=seconds)
        if before:
            power = math.log(seconds / before[1]) / math.log(n / before[0])
            row.note = f"grows as n^{power:.2f}"
        before = n, seconds
        yield row


def auto(plan: Plan) -> Iterator[Row]:
    """What "auto" takes beside the best of all methods, which is the peer."""
    for n in plan.auto_rows:
        for d in (1, 2, 3):
            for scale, rtol, outliers in (
                (1.0, 1e-2, 0),
                (0.1, 1e-2, 0),
                (5.0, 1e-2, 0),
                (1.0, 1e-5, 0),
                (1.0, 1e-2, 10),
            ):
                X = np.random.default_rng(0).standard_normal((n, d))
                X[:outliers] *= 1000
                problem = Problem(X, X, scale * kernel_density.normal_reference(n, d))
                tasks = {m: partial(gridded.ours, problem, rtol, m) for m in _METHODS}
                take_turns(tasks, 1)
                best = {m: one.best for m, one in take_turns(tasks, 3).items()}
                ours, least = best.pop("auto"), min(best.values())
                over = ours - (1.2 * least + 0.01)
                sizes = f"n={n:,} d={d} h={problem.h:.3g} rtol={rtol:g} outliers={outliers}"
                row = Row("auto", sizes, peer_seconds=least, our_seconds=ours, details=dict(best))
                row.note = ", ".join(f"{m} {seconds:.3f} s" for m, seconds in best.items())
                if over > 0:
                    row.note += f"; over 1.2 times + 10 ms by {over:.3f} s"
                yield row


def products(plan: Plan) -> Iterator[Row]:
    """Standard normal points in many dimensions, all of them queries; the peer is NumPy in blocks.

    Without a tolerance, and within 1 %.
    """
    for n, d in plan.products:
        problem = kernel_density.normal_problem(n, d)
        tasks = {"peer": partial(gridded.numpy_in_blocks, problem)}
        tasks |= {str(rtol): partial(gridded.ours, problem, rtol) for rtol in (0.0, _RTOL)}
        take_turns(tasks, 1)
        timings, truth = take_turns(tasks, plan.repeats), Truth(problem)
        for rtol in (0.0, _RTOL):
            ours = timings[str(rtol)]
            row = _row("products", problem, truth, timings["peer"], ours, rtol)
            row.peer_error = truth.error(timings["peer"].result)
            yield row


def _row(
    case: str, problem: Problem, truth: Truth, peer: Timing, ours: Timing, rtol: float = _RTOL
) -> Row:
    """Return the times of both, and our error."""
    return Row(
        case,
        f"{problem} rtol={rtol:g}",
        peer_seconds=peer.best,
        our_seconds=ours.best,
        our_error=truth.error(ours.result),
        details={"peer_all_seconds": peer.seconds, "our_all_seconds": ours.seconds},
    )


CASES = {"trees": trees, "kdepy": kdepy, "growth": growth, "auto": auto, "products": products}
