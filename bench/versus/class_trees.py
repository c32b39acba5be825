"""NCA's objective by trees and lattices against all pairs: the cases of `versus tree`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.spatial import cKDTree
from sklearn.exceptions import ConvergenceWarning

from bench.shared.report import Row
from bench.shared.setup import (
    Problem,
    Timing,
    UnavailableError,
    clock,
    covertype,
    random_normal,
    take_turns,
)
from bench.sides import nca as both
from fastmetric import NCA, nca_value_and_grad
from fastmetric.core.lattice.stencils import AXES
from fastmetric.learn import linear_starts
from fastmetric.learn.nca.objective import Evaluation, Objective
from fastmetric.learn.rows import ArrayRows

_COLUMNS = 10  # the quantitative ones
_COMPONENTS = 2
_RTOL = 1e-2
_FEW = 2_000  # rows that suffice to have all code compiled
_NO_STATE = np.random.RandomState(0)  # the PCA start draws nothing


class Plan(NamedTuple):
    """How large, and how often."""

    n: int  # of covertype
    repeats: int
    auto_sizes: tuple[int, ...]  # of the grid for "auto"
    compact_n: int  # of covertype
    all_rows: tuple[int, int]  # of covertype, and of a mixture


FULL = Plan(100_000, 4, (5_000, 20_000), compact_n=50_000, all_rows=(581_012, 1_000_000))
QUICK = Plan(5_000, 2, (5_000,), compact_n=5_000, all_rows=(20_000, 20_000))
_MAPS = (1.0, 4.0, 16.0)  # times the PCA start
_FIT_ITERATIONS = 50
_AUTO_SCALES = (0.1, 1.0, 30.0)
_AUTO_REPEATS = 3
_COMPACT_SCALES = (1.0, 0.5, 0.25, 0.125)  # of the solution: wider kernels, and more pairs
_COMPACT_ITERATIONS = 30


def standardised(plan: Plan) -> Iterator[Row]:
    """One evaluation on standardised columns: a kernel reaches a large part of the rows."""
    yield _row("standardised", plan)


def raw(plan: Plan) -> Iterator[Row]:
    """One evaluation on the columns as they are: a kernel reaches hardly any other row."""
    yield _row("raw", plan)


def lattice(plan: Plan) -> Iterator[Row]:
    """One evaluation by lattices, for maps of several sizes; the peer is all pairs."""
    X, y = covertype(plan.n, _COLUMNS, standardised=True)
    for scale in _MAPS:
        problem = Problem(scale * _pca(X, y), X, y)
        tasks = {"peer": partial(_exact, problem), "ours": partial(_grid, problem)}
        if scale == 1:
            take_turns(tasks, 1)  # compiles
        yield _by_lattices("lattice", f"map={scale:g} x start", problem, take_turns(tasks, 3))


def all_rows(plan: Plan) -> Iterator[Row]:
    """One evaluation on all rows of covertype, and on those of a mixture; the peer is our trees."""
    for name, X, y in _large(plan):
        problem = Problem(_pca(X, y), X, y)
        tasks = {"peer": partial(_tree, problem), "ours": partial(_grid, problem)}
        take_turns(tasks, 1)
        yield _by_lattices("all_rows", name, problem, take_turns(tasks, plan.repeats))


def fits(plan: Plan) -> Iterator[Row]:
    """A fit by L-BFGS on all rows, with the tolerance that is the default."""
    for name, X, y in _large(plan):
        nca = NCA(_COMPONENTS, init="pca", solver="lbfgs", max_iter=_FIT_ITERATIONS)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            timing = clock(partial(nca.fit, X, y))
        yield Row(
            "fits",
            f"{name} n={len(X):,} {nca.n_iter_} iterations",
            our_seconds=timing.best,
            error_bound=nca.error_bound_,
            note=f"{nca.history_['evaluations'][-1]:g} evaluations; mean objective "
            f"{nca.objective_:.6f}",
        )


def _large(plan: Plan) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield large data: standardised covertype, and a mixture of six normal classes."""
    yield "covertype", *covertype(plan.all_rows[0], _COLUMNS, standardised=True)
    rng, n, D = np.random.default_rng(0), plan.all_rows[1], 8
    y, means = rng.integers(0, 6, n), 2 * rng.standard_normal((6, D))
    X = rng.standard_normal((n, D)) @ (np.eye(D) + 0.4 * rng.standard_normal((D, D))) + means[y]
    yield "mixture", X, y


def _pca(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the PCA start."""
    return linear_starts.start("pca", _COMPONENTS, ArrayRows(X), y.astype(np.intp), _NO_STATE)


def _by_lattices(case: str, sizes: str, problem: Problem, timings: dict[str, Timing]) -> Row:
    """Return the times of a peer and of lattices, and the difference of the mean objective."""
    n = len(problem.X)
    (peer_value, peer_gradient), (value, gradient) = (t.result for t in timings.values())
    bound = nca_value_and_grad(*problem, method="grid", rtol=_RTOL, return_bound=True)[2]
    return Row(
        case,
        f"n={n:,} d={len(problem.A)} rtol={_RTOL:g} {sizes}",
        peer_seconds=timings["peer"].best,
        our_seconds=timings["ours"].best,
        our_error=abs(value - peer_value) / n,
        error_bound=bound / n,
        gradient_difference=both.difference(gradient, peer_gradient),
    )


def auto(plan: Plan) -> Iterator[Row]:
    """What "auto" takes beside the best of all ways, on random normal data; the peer is that."""
    for n, d, scale, rtol in product(plan.auto_sizes, (2, 5), _AUTO_SCALES, (0.0, _RTOL)):
        problem = random_normal(n, 10, d)
        problem = problem._replace(A=scale * problem.A)
        tasks = {
            method: partial(nca_value_and_grad, *problem, method=method, rtol=rtol)
            for method in ("exact", "tree", "grid", "auto")
            if method != "grid" or (rtol and d <= AXES)
        }
        take_turns(tasks, 1)
        seconds = {name: one.best for name, one in take_turns(tasks, _AUTO_REPEATS).items()}
        best = min(one for name, one in seconds.items() if name != "auto")
        over = seconds["auto"] - (1.2 * best + 0.01)
        yield Row(
            "auto",
            f"n={n:,} d={d} scale={scale:g} rtol={rtol:g}",
            peer_seconds=best,
            our_seconds=seconds["auto"],
            note=", ".join(f"{name} {one:.3f} s" for name, one in seconds.items())
            + (f"; over 1.2 times + 10 ms by {over:.3f} s" if over > 0 else ""),
            details=seconds,
        )


def compact(plan: Plan) -> Iterator[Row]:
    """One evaluation with compact support at its solution, and at wider kernels.

    The peer is the exact Gaussian at the same map.
    """
    X, y = covertype(plan.compact_n, _COLUMNS)
    nca = NCA(_COMPONENTS, kernel="biweight", solver="lbfgs", max_iter=_COMPACT_ITERATIONS)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        solution = nca.fit(X, y).components_
    for scale in _COMPACT_SCALES:
        problem = Problem(scale * solution, X, y)
        tasks = {
            "exact": partial(_exact, problem),
            "compact": partial(nca_value_and_grad, *problem, kernel="biweight", method="auto"),
        }
        if scale == 1:
            take_turns(tasks, 1)  # compiles
        timings = take_turns(tasks, plan.repeats)
        reached = _share_in_reach(X @ problem.A.T)
        yield Row(
            "compact",
            f"covertype n={len(X):,} D={_COLUMNS} d={_COMPONENTS} map={scale:g} x solution",
            peer_seconds=timings["exact"].best,
            our_seconds=timings["compact"].best,
            note=f"the peer is the exact Gaussian; {reached:.2%} of the pairs contribute; "
            f"objective of the compact kernel {timings['compact'].result[0] / len(X):.4f}",
            details={"pairs_in_reach": reached}
            | {f"{name}_all_seconds": timing.seconds for name, timing in timings.items()},
        )


def _share_in_reach(Z: np.ndarray) -> float:
    """Return the share of the pairs of rows at a distance below 1."""
    tree = cKDTree(Z)
    return float(tree.count_neighbors(tree, 1.0) - len(Z)) / len(Z) ** 2


def _row(case: str, plan: Plan) -> Row:
    """Return time and agreement of both ways; the peer is our exact one."""
    X, y = covertype(plan.n, _COLUMNS, standardised=case == "standardised")
    problem = Problem(_pca(X, y), X, y)
    compiling = clock(partial(_load_code, problem)).best
    tasks = {"exact": partial(_exact, problem), "tree": partial(_tree, problem)}
    timings = take_turns(tasks, plan.repeats)
    row = _compared(case, problem, timings["exact"], timings["tree"])
    row.compile_seconds = compiling
    return row


def _compared(case: str, problem: Problem, exact: Timing, tree: Timing) -> Row:
    """Return the times and the difference of the mean objective, beside its bound."""
    (exact_value, exact_gradient), (value, gradient) = exact.result, tree.result
    n, D = problem.X.shape
    bound = _error_bound(problem)
    return Row(
        case,
        f"covertype n={n:,} D={D} d={len(problem.A)} rtol={_RTOL:g}",
        peer_seconds=exact.best,
        our_seconds=tree.best,
        our_error=abs(value - exact_value) / n,
        error_bound=None if bound is None else bound / n,
        gradient_difference=both.difference(gradient, exact_gradient),
        note=f"the peer is method='exact'; mean objective {exact_value / n:.6f}, "
        f"by the tree {value / n:.6f}",
        details={"peer_all_seconds": exact.seconds, "our_all_seconds": tree.seconds}
        | {"exact_value": exact_value, "tree_value": value, "error_bound_of_sum": bound},
    )


def _exact(problem: Problem) -> tuple[float, np.ndarray]:
    """Return value and gradient (d, D) over all pairs."""
    return nca_value_and_grad(problem.A, problem.X, problem.y, method="exact")


def _tree(problem: Problem) -> tuple[float, np.ndarray]:
    """Return value and gradient (d, D) by trees, within the tolerance."""
    return nca_value_and_grad(problem.A, problem.X, problem.y, method="tree", rtol=_RTOL)


def _grid(problem: Problem) -> tuple[float, np.ndarray]:
    """Return value and gradient (d, D) by lattices, every P_i within half the tolerance."""
    return nca_value_and_grad(problem.A, problem.X, problem.y, method="grid", rtol=_RTOL)


def _load_code(problem: Problem) -> None:
    """Compile all that both ways need, or load it; raise if there is no way by trees."""
    few = problem._replace(X=problem.X[:_FEW], y=problem.y[:_FEW])
    both.load_code(few)
    try:
        for scale in (1.0, 1e-3):  # rows far from each other, and near
            _tree(few._replace(A=problem.A * scale))
            _grid(few._replace(A=problem.A * scale))
    except (TypeError, ValueError) as error:  # an unknown argument, or an unknown method
        raise UnavailableError(f"nca_value_and_grad by method='tree' failed ({error})") from error


def _error_bound(problem: Problem) -> float | None:
    """Return the certified bound of the value's error; None if an evaluation has none."""
    if "error_bound" not in Evaluation._fields:
        return None
    seen: list[Any] = []
    evaluate = Objective.evaluate

    def remembering(*args: Any, **kwargs: Any) -> Evaluation:
        seen.append(evaluate(*args, **kwargs))
        return seen[-1]

    # The public function returns value and gradient only.
    with patch.object(Objective, "evaluate", remembering):
        _tree(problem)
    return float(seen[-1].error_bound) if seen else None


CASES = {
    "standardised": standardised,
    "raw": raw,
    "lattice": lattice,
    "all_rows": all_rows,
    "fits": fits,
    "auto": auto,
    "compact": compact,
}
