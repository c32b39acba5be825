"""`python -m bench.costs`: the costs of `fastmetric.learn.costs`, measured again on this machine.

For every problem and every way that serves it, the table shows what `cost()` predicts and the CPU
time that the way takes on one thread. Only ratios of costs decide, so the predicted times are
scaled by the machine's speed, the median of measured over predicted.

A cost is linear in the entries of its row. The counts that multiply them are found by asking
`cost()` with a row that has one entry 1 and all others 0; the entries that fit the measured times
best, by least squares of relative errors, are shown below the row that stands.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.optimize import nnls

from fastmetric import engine
from fastmetric.learn import costs
from fastmetric.learn.chooser import Way
from fastmetric.learn.kernel_sums import log_sums as densities
from fastmetric.learn.kernel_sums.product_sums import ProductSums
from fastmetric.learn.kernel_sums.sum_problem import SumProblem
from fastmetric.learn.kernel_table import EXP_BANDWIDTH, KERNELS
from fastmetric.learn.local_component.e_step import Expecting, NeighbourList, Products
from fastmetric.learn.local_component.product_e_step import Neighbours
from fastmetric.learn.pair_sums.problem import PairProblem, PairSums, Queries, RowWeights, Segments
from fastmetric.learn.pair_sums.ways import WAYS as PAIR_WAYS

ROWS = {
    name: row
    for name, row in vars(costs).items()
    if isinstance(row, (costs.Costs, costs.EStepCosts, costs.GridCosts, costs.ProductCosts))
}


_MOST_DENSE = 50_000  # points of which all pairs are summed


class Case(NamedTuple):
    """A way to compute the sums of a problem."""

    row: str  # of the table
    problem: str
    way: str
    cost: Callable[[], float]  # nanoseconds, by the table
    run: Callable[[], Any]


class Measured(NamedTuple):
    """A case and its times, in nanoseconds."""

    case: Case
    predicted: float
    taken: float
    counts: dict[tuple[str, str], float]  # of (row, entry): what `cost` multiplies it by


# Problems


def clusters(n: int, d: int, spread: float = 1.0, seed: int = 0) -> np.ndarray:
    """Return n points of ten Gaussian clusters in d dimensions, sorted by cluster."""
    rng = np.random.default_rng(seed)
    centers = 3 * spread * rng.standard_normal((10, d))
    return centers[np.sort(rng.integers(0, 10, n))] + spread * rng.standard_normal((n, d))


def density_cases(scale: float) -> Iterator[Case]:
    """Yield log sums of a Gaussian over one tree and over all pairs."""
    for d, n, bandwidth, rtol in [
        (1, 40_000, 0.05, 0.0),
        (1, 400_000, 0.01, 1e-2),
        (2, 30_000, 0.3, 0.0),
        (2, 30_000, 0.3, 1e-2),
        (2, 100_000, 0.03, 1e-2),
        (2, 100_000, 0.3, 1e-6),
        (3, 30_000, 0.5, 1e-2),
        (3, 30_000, 0.5, 1e-5),
        (3, 50_000, 0.2, 1e-2),
        (5, 20_000, 0.5, 1e-2),
        (10, 10_000, 1.0, 1e-1),
    ]:
        n = int(n * scale)
        sums = densities.KernelSums(clusters(n, d), bandwidth=bandwidth, n_jobs=1)
        for way in (way for way in densities.WAYS if way is not ProductSums):
            if way.all_pairs and n > _MOST_DENSE:
                continue
            recorded: list[Any] = []
            with choosing(recorded):
                sums.log_sums(rtol=rtol, method=way.method)
            ((problem, chosen),) = recorded
            if chosen.method != way.method:
                continue
            row = "GRID" if way.method == "grid" else "SUMS"
            if way.method == "tree" and chosen.walk.rule.in_float32:
                row = "SUMS_IN_FLOAT32"
            built = way(problem, 1)
            yield Case(
                row,
                f"density, n={n}, d={d}, h={bandwidth}, rtol={rtol:g}",
                built.name,
                built.cost,
                partial(_sums_anew, sums, rtol, way.method),
            )


def _sums_anew(sums: densities.KernelSums, rtol: float, method: str) -> None:
    """Compute log sums, with a lattice made for them."""
    sums.lattice = None
    sums.log_sums(rtol=rtol, method=method)


def product_cases(scale: float) -> Iterator[Case]:
    """Yield log sums of a Gaussian by products: few and many terms, one and two sets of rows."""
    for d in (24, 60, 128, 400):
        X = np.random.default_rng(0).standard_normal((int(4_000 * scale), d))
        for bandwidth, free, rtol in [
            (0.25, False, 0.0),
            (0.25, True, 0.0),
            (0.25, True, 1e-2),
            (20 * np.sqrt(d), False, 0.0),
            (20 * np.sqrt(d), True, 0.0),
            (20 * np.sqrt(d), True, 1e-2),
        ]:
            query = np.random.default_rng(1).standard_normal(X.shape) if free else X
            sums = densities.KernelSums(X, bandwidth=bandwidth, n_jobs=1)
            yield Case(
                "PRODUCTS" if rtol == 0 else "PRODUCTS_IN_FLOAT32",
                f"products, n={len(X)}, d={d}, h={bandwidth:.3g}, rtol={rtol:g}, {free=}",
                "products",
                partial(product_cost, sums, query, rtol),
                by_products(sums, query, rtol).log_sums,
            )


def by_products(sums: densities.KernelSums, query: np.ndarray, rtol: float) -> ProductSums:
    """Return the way by products."""
    return ProductSums(SumProblem(sums, query, sums._rule(rtol, 0.0)), 1)


def product_cost(sums: densities.KernelSums, query: np.ndarray, rtol: float) -> float:
    """Return what sums by products take, in nanoseconds by the table, counted anew."""
    return by_products(sums, query, rtol)._costs()[0]


@contextmanager
def choosing(recorded: list[Any]) -> Iterator[None]:
    """Record the problem of a density and the way chosen for it."""
    choose = densities.choose

    def record(problem: Any, *args: Any) -> Any:
        recorded.append((problem, choose(problem, *args)))
        return recorded[-1][1]

    with patch.object(densities, "choose", record):
        yield


def class_cases(scale: float) -> Iterator[Case]:
    """Yield sums over classes, with their gradient or by class, of both kernels of NCA."""
    for kernel, d, n, n_classes, width, rtol, by_class in [
        ("gaussian", 2, 12_000, 5, 2.0, 1e-2, False),
        ("gaussian", 4, 12_000, 3, 2.0, 1e-2, False),
        ("gaussian", 2, 12_000, 5, 2.0, 1e-2, True),
        ("gaussian", 4, 12_000, 3, 2.0, 1e-2, True),
        ("biweight", 2, 12_000, 5, 1.0, 0.0, False),
        ("biweight", 3, 12_000, 3, 1.0, 0.0, False),
        ("biweight", 2, 12_000, 5, 1.0, 0.0, True),
    ]:
        n = int(n * scale)
        points = width * EXP_BANDWIDTH * clusters(n, d)
        segments = Segments(np.linspace(0, n, n_classes + 1).astype(np.intp))
        points = points[np.random.default_rng(1).permutation(n)]
        queries = None
        if by_class:
            none = np.full(n, -1)
            queries = Queries(points + 0.01, none, np.zeros(n, np.intp))
        problem = PairProblem(
            points, segments, np.ones(n), KERNELS[kernel].code, queries, None, rtol, by_class
        )
        name = f"{kernel}, n={n}, d={d}, {n_classes} classes" + (", by class" if by_class else "")
        for way in PAIR_WAYS:
            if way.serves(problem):
                row = _row_of(way, problem)
                yield Case(
                    row,
                    name,
                    way.__name__,
                    partial(cost_of, way, problem),
                    partial(both_passes, way, problem),
                )


def _row_of(way: Any, problem: PairProblem) -> str:
    """Return the row that has most of the cost of a way."""
    compact = problem.code == KERNELS["biweight"].code
    if problem.per_segment:
        return "CUTOFF_BY_SEGMENT" if compact else "SUMS_BY_SEGMENT"
    return "CUTOFF" if compact else "SUMS_AND_GRADIENT"


def cost_of(way: type[Way], problem: Any) -> float:
    """Return what a way costs, in nanoseconds by the table."""
    return way(problem, 1).cost()


def both_passes(way: type[PairSums], problem: PairProblem) -> None:
    """Compute all that a problem asks for."""
    sums = way(problem, 1)
    if problem.per_segment:
        sums.by_segment()
        return
    found = sums.log_sums()
    total = np.logaddexp(found.own, found.other)
    total = np.where(np.isfinite(total), total, 0.0)
    sums.gradient(RowWeights(total, np.ones(len(total)), -np.ones(len(total))))


def e_step_cases(scale: float) -> Iterator[Case]:
    """Yield E-steps of Local Component Analysis, by products and by neighbour lists."""
    n = int(3000 * scale)
    for D, q, spread in [
        (16, 16, 0.5),
        (16, 16, 3.0),
        (64, 64, 2.0),
        (64, 8, 2.0),
        (128, 128, 1.5),
    ]:
        W = clusters(n, D, spread)
        problem = Neighbours(W - W.mean(axis=0), q)
        for way in (NeighbourList, Products):
            if way.serves(problem):
                yield Case(
                    "E_STEP",
                    f"E-step, n={n}, D={D}, q={q}, spread={spread}",
                    way.name,
                    partial(cost_of, way, problem),
                    partial(e_step, way, problem),
                )


def e_step(way: type[Expecting], problem: Neighbours) -> None:
    """Compute an E-step."""
    way(problem, 1).log_sums_and_scatter()


# Measuring


@contextmanager
def unit_row(name: str, entry: str) -> Iterator[None]:
    """Set all costs to 0 but one entry of one row, which is 1."""
    for key, row in ROWS.items():
        zero = row._replace(**dict.fromkeys(row._fields, 0.0))
        setattr(costs, key, zero._replace(**{entry: 1.0}) if key == name else zero)
    try:
        yield
    finally:
        for key, row in ROWS.items():
            setattr(costs, key, row)


def counts_of(case: Case) -> dict[tuple[str, str], float]:
    """Return what the entries of the table are multiplied by in the cost of a case."""
    counts = {}
    for name, row in ROWS.items():
        for entry in row._fields:
            with unit_row(name, entry):
                count = case.cost()
            if count != 0 and np.isfinite(count):
                counts[name, entry] = count
    return counts


def cpu_nanoseconds(run: Callable[[], Any], repeat: int) -> float:
    """Return the CPU time of the fastest of some runs, after one to warm up."""
    run()
    best = np.inf
    for _ in range(repeat):
        began = time.process_time_ns()
        run()
        best = min(best, time.process_time_ns() - began)
    return float(best)


def measure(scale: float = 1.0, repeat: int = 3) -> list[Measured]:
    """Return all cases with their times; cases whose structure refuses the problem are left out."""
    found = []
    for cases in (density_cases, product_cases, class_cases, e_step_cases):
        for case in cases(scale):
            predicted = case.cost()
            if np.isfinite(predicted):
                taken = cpu_nanoseconds(case.run, repeat)
                found.append(Measured(case, predicted, taken, counts_of(case)))
    return found


def machine_factor(found: list[Measured]) -> float:
    """Return how much slower than the table this machine is."""
    return float(np.median([one.taken / one.predicted for one in found]))


def fitted(found: list[Measured]) -> dict[tuple[str, str], float]:
    """Return the entries of the table that fit the times best, in nanoseconds."""
    keys = sorted({key for one in found for key in one.counts})
    shares = np.array([[one.counts.get(key, 0.0) / one.taken for key in keys] for one in found])
    return dict(zip(keys, nnls(shares, np.ones(len(found)))[0], strict=True))


def main() -> None:
    """Print the times beside the costs, and the table that fits them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="times the rows of every problem")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts")
    args = parser.parse_args()
    with engine.one_thread_blas():
        found = measure(args.scale, args.repeat)
    factor = machine_factor(found)
    print(f"{'problem':52} {'way':14} {'cost ms':>9} {'taken ms':>9} {'ratio':>6}")
    for case, predicted, taken, _ in found:
        predicted *= factor
        print(
            f"{case.problem:52} {case.way:14} {predicted / 1e6:9.1f} {taken / 1e6:9.1f} "
            f"{taken / predicted:6.2f}"
        )
    print(f"\nThis machine takes {factor:.2f} of the table's nanoseconds.\n")
    table = fitted(found)
    for name, row in ROWS.items():
        print(name)
        for entry, value in row._asdict().items():
            if (name, entry) in table:
                print(f"    {entry:18} {value:9.3g} {table[name, entry] / factor:9.3g}")


if __name__ == "__main__":
    main()
