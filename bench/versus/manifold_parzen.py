"""ManifoldParzen against a plain loop and the rate of products: the cases of `versus manifold`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bench.shared import new_process
from bench.shared.report import Row
from bench.shared.setup import clock, customary_split, peak_memory, take_turns
from fastmetric import ManifoldParzen

_Q, _K, _NOISE = 11, 11, 0.4
_FEW = 64  # rows that suffice to have all code compiled
_STEP = 8192  # rows of a product: the whole would take a gigabyte


class Plan(NamedTuple):
    """How large, and how often."""

    points: int  # of USPS
    queries: int
    repeats: int
    curve_points: int
    curve_queries: int
    fit_rows: int  # of MNIST


FULL = Plan(7291, 2007, repeats=5, curve_points=100_000, curve_queries=10_000, fit_rows=60_000)
QUICK = Plan(1500, 500, repeats=3, curve_points=5_000, curve_queries=1_000, fit_rows=2_000)


# Log densities


def scoring(plan: Plan) -> Iterator[Row]:
    """Log densities of USPS's test rows under its training rows, 11 directions each.

    The peer is a loop over the training rows in NumPy, float64, with BLAS on all cores. Beside
    it, all projections as plain matrix products, by BLAS on all cores.
    """
    split = customary_split("usps")
    X, query = split.X[: plan.points], split.X_test[: plan.queries]
    models, compiling = {}, {}
    tasks: dict[str, Any] = {}
    for dtype in (np.float64, np.float32):
        name, rows = np.dtype(dtype).name, query.astype(dtype)
        model = ManifoldParzen(_Q, n_neighbors=_K, noise_variance=_NOISE).fit(X.astype(dtype))
        compiling[name] = clock(partial(model.score_samples, rows[:_FEW])).best
        models[name] = model
        tasks[name] = partial(model.score_samples, rows)
        tasks[f"products {name}"] = partial(_products, model.directions_, rows)
    tasks["peer"] = partial(_loop, models["float64"], X.astype(float), query.astype(float))
    timings = take_turns(tasks, plan.repeats)
    for name in models:
        ours, products, peer = timings[name], timings[f"products {name}"], timings["peer"]
        share = products.best / ours.best
        yield Row(
            "scoring",
            f"{len(query)} rows, n={len(X)} D={X.shape[1]} q={_Q} {name}",
            peer_seconds=peer.best,
            our_seconds=ours.best,
            our_error=float(np.abs(ours.result - peer.result).max()),
            compile_seconds=compiling[name],
            note=f"{share:.0%} of the rate of matrix products ({products.best:.3g} s)",
            details={
                "our_all_seconds": ours.seconds,
                "products_all_seconds": products.seconds,
                "share_of_products": share,
            },
        )


def _products(directions: np.ndarray, query: np.ndarray) -> None:
    """Compute the projections of all queries on all directions, and drop them."""
    flat = directions.reshape(-1, directions.shape[2])
    for first in range(0, len(flat), _STEP):
        flat[first : first + _STEP] @ query.T


def _loop(model: ManifoldParzen, X: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the log densities by a loop over the training rows."""
    n, n_features = X.shape
    logs = np.empty((n, len(query)))
    for i in range(n):
        gaps = query - X[i]
        squares = (gaps @ model.directions_[i].T) ** 2
        variances = model.variances_[i] + _NOISE
        across = (gaps**2).sum(axis=1) - squares.sum(axis=1)
        quadratic = across / _NOISE + (squares / variances).sum(axis=1)
        log_det = np.log(variances).sum() + (n_features - len(variances)) * np.log(_NOISE)
        logs[i] = -(quadratic + log_det + n_features * np.log(2 * np.pi)) / 2
    return logsumexp(logs, axis=0) - np.log(n)


# Few dimensions


def curve(plan: Plan) -> Iterator[Row]:
    """Log densities around a spiral in two and three dimensions, one direction each.

    The peer takes all pairs in NumPy, a chunk of training rows at a time, for a tenth of the
    queries, which it has in common with the first of our times. The second is that of all.
    """
    few = plan.curve_queries // 10
    for n_features in (2, 3):
        for sigma in (0.01, 0.001):
            X = _spiral(plan.curve_points, n_features, sigma, seed=0)
            query = _spiral(plan.curve_queries, n_features, sigma, seed=1)
            model = ManifoldParzen(1, n_neighbors=_K, noise_variance=sigma**2).fit(X)
            compiling = clock(partial(model.score_samples, query)).best
            tasks: dict[str, Any] = {
                "ours": partial(model.score_samples, query[:few]),
                "all": partial(model.score_samples, query),
                "peer": partial(_all_pairs, model, X, query[:few]),
            }
            for rtol in (1e-2, 1e-4):
                loose = ManifoldParzen(1, n_neighbors=_K, noise_variance=sigma**2, rtol=rtol)
                tasks[f"rtol={rtol:.0e}"] = partial(loose.fit(X).score_samples, query)
            timings = take_turns(tasks, plan.repeats, once=("peer",))
            ours, whole, peer = (timings[name] for name in ("ours", "all", "peer"))
            loose_times = {name: timings[name].best for name in tasks if name.startswith("rtol")}
            times = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in loose_times.items())
            yield Row(
                "curve",
                f"{few:,} rows, n={len(X):,} D={n_features} q=1 sigma={sigma}",
                peer_seconds=peer.best,
                our_seconds=ours.best,
                our_error=float(np.abs(ours.result - peer.result).max()),
                compile_seconds=compiling,
                note=f"{len(query):,} rows: {whole.best:.3g} s; {times}",
                details={"our_all_seconds": ours.seconds, "whole_seconds": whole.seconds}
                | loose_times,
            )


def _spiral(n: int, n_features: int, sigma: float, seed: int) -> np.ndarray:
    """Return rows (n, D) around a spiral, sigma away from it."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(3, 15, n)
    line = 0.04 * np.column_stack([t * np.sin(t), t * np.cos(t), t])[:, :n_features]
    return line + sigma * rng.standard_normal((n, n_features))


def _all_pairs(model: ManifoldParzen, X: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the log densities from all pairs, for one direction each."""
    n, n_features = X.shape
    noise, logs = model.noise_variance, np.full(len(query), -np.inf)
    for part in np.array_split(np.arange(n), 1 + n // 500):
        gaps = query - X[part, None]
        squares = np.einsum("imd,id->im", gaps, model.directions_[part, 0]) ** 2
        variances = model.variances_[part] + noise
        quadratic = (np.einsum("imd,imd->im", gaps, gaps) - squares) / noise + squares / variances
        log_det = np.log(variances) + (n_features - 1) * np.log(noise)
        terms = -(quadratic + log_det + n_features * np.log(2 * np.pi)) / 2
        logs = np.logaddexp(logs, logsumexp(terms, axis=0))
    return logs - np.log(n)


# A large fit


def fit(plan: Plan) -> Iterator[Row]:
    """MNIST, 20 neighbours, 10 directions, float32: seconds and memory, in a new process."""
    found = new_process.call(__name__, "measured_fit", rows=plan.fit_rows)
    yield Row(
        "fit",
        f"n={plan.fit_rows:,} D=784 k=20 q=10 float32",
        our_seconds=found["seconds"],
        our_peak=found["peak"],
        note=f"the directions take {found['stored'] / 1e6:,.1f} MB, the rows "
        f"{found['rows'] / 1e6:,.1f} MB",
        details=found,
    )


def measured_fit(rows: int) -> dict[str, Any]:
    """Return seconds, peak memory above the data, and what is stored."""
    X = customary_split("mnist").X[:rows] / np.float32(255)
    model = ManifoldParzen(10, n_neighbors=20, noise_variance=0.01, verbose=1)
    model.fit(X[:200])  # compiles
    seconds: list[float] = []
    peak = peak_memory(lambda: seconds.append(clock(lambda: model.fit(X)).best))
    stored = model.directions_.nbytes + model.variances_.nbytes
    return {"seconds": seconds[0], "peak": peak, "stored": stored, "rows": X.nbytes}


CASES = {"scoring": scoring, "curve": curve, "fit": fit}
