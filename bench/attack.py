"""An attack on the certificate of `kernel_sums`: random cases made to break it, for hours if asked.

    python -m bench.attack --cases 20000                 # prints cases and violations per kernel
    python -m bench.attack --seconds 3600 --state FILE   # goes on from the seed that FILE ends with

A case is drawn from its seed alone: scales from 1e-150 to 1e150, offsets up to 1e8 times the
spread, weights up to 1e300 apart, lattices, duplicates, points on a line, Cauchy tails, up to
1,000,000 points and 800 features, every kernel, kind of bandwidth, precision and method, leaving
one out or at queries. A third are Gaussians in one to three dimensions with a tolerance, mostly by
a lattice: points on the borders of its cells, or a last bit beside, and queries anywhere. The
reference is a sum over all pairs in the widest floats, of which the error is bounded, too; it is
taken at no more than `_JUDGED` queries of a case. A case whose bandwidth is refused is counted
apart. The exit status is 1 if a bound was broken.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastmetric import kernel_sums
from fastmetric.learn.kernel_table import NAMES
from fastmetric.learn.lattices.lattice_plan import plans

WIDE = np.longdouble
_EPS = float(np.finfo(WIDE).eps)
_PAIRS = 2_000_000  # numbers of the reference at once
_JUDGED = 24  # queries of a case that are compared with the reference
_AT_ONCE = 50  # cases that a process takes


class Case(NamedTuple):
    """Points, queries (None: leave one out), weights, and how to sum."""

    X: np.ndarray
    query: np.ndarray | None
    weights: np.ndarray | None
    bandwidth: float | np.ndarray
    kernel: str
    rtol: float
    atol: float
    method: str


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng([seed, 18])
    if seed % 500 and rng.random() < 1 / 3:
        return _draw_for_a_lattice(rng)
    dtype: type[np.floating] = np.float32 if rng.random() < 0.3 else np.float64
    d = int(rng.choice([1, 2, 3, 4, 6, 9, 12, 15, 30, 60]))
    n = int(10 ** rng.uniform(0, 3.3))
    if seed % 500 == 0:
        d, n = int(rng.integers(1, 4)), int(10 ** rng.uniform(5, 6))
    in_products = seed % 7 == 0  # enough rows for products of matrices, and many features
    if in_products:
        d, n = int(rng.choice([16, 24, 40, 70, 128, 300, 800])), int(rng.integers(512, 1400))
    X = rng.standard_normal((n, d))
    shape = rng.choice(["normal", "lattice", "duplicates", "line", "cauchy", "clusters", "place"])
    if shape == "lattice":
        X = np.round(2 * X) / 2
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "line":
        X = X[:, :1] * rng.standard_normal(d)
    elif shape == "cauchy":
        X = np.clip(X / rng.standard_normal((n, 1)), -1e9, 1e9)
    elif shape == "clusters":
        X = X + 10.0 ** rng.uniform(0, 8) * rng.integers(0, 3, (n, 1))
    elif shape == "place":
        X[:] = X[0] + np.where(rng.random((n, 1)) < 0.02, 10.0 ** rng.uniform(0, 5), 0)
    X = X + rng.choice([0, 0, 1, 1e4, 1e8]) * rng.standard_normal(d)
    most = 150 if dtype == np.float64 else 13
    scale = 10.0 ** rng.choice([0, rng.uniform(-8, 8), rng.uniform(-most, most - 12)])
    h = 10.0 ** rng.uniform(-2, 1.5) * np.sqrt(d)
    queries = X[rng.integers(0, n, 12)] + h * rng.choice([0, 0.3, 1, 10.0 ** rng.uniform(0, 4)]) * (
        rng.standard_normal((12, d)) / np.sqrt(d)
    )
    query = None if n < 1500 and rng.random() < 0.4 else (queries * scale).astype(dtype)
    if in_products and query is not None:
        more = X[rng.integers(0, n, 512 - len(query) % 512)] * scale
        query = np.concatenate([query, more.astype(dtype)]) if rng.random() < 0.5 else None
    kind = rng.choice(["number", "number", "vector", "matrix"])
    if in_products and d > 100 and kind == "matrix":  # its inverse in wide arithmetic takes minutes
        kind = "vector"
    bandwidth: Any = float(dtype(scale * h))
    if kind == "vector":
        bandwidth = bandwidth * 10.0 ** rng.uniform(-1, 1, d)
    elif kind == "matrix" and 1e-60 < scale < 1e60:
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        R = (Q * 10.0 ** rng.uniform(-4, 0, d)) @ Q.T
        bandwidth = (R + R.T) / 2 * bandwidth**2
    weights, kernel = _weights(rng, n), str(rng.choice(NAMES))
    rtol = float(rng.choice([0.0, 0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.5]))
    atol = float(rng.choice([0.0, 0.0, 0.0, 1e-3]))
    method = str(rng.choice(["auto", "tree", "tree", "exact"]))
    if in_products:
        kernel, method = "gaussian", str(rng.choice(["exact", "auto"]))
    if kernel == "gaussian" and d <= 3 and rtol + atol > 0 and rng.random() < 0.6:
        method = "grid"
    return Case((scale * X).astype(dtype), query, weights, bandwidth, kernel, rtol, atol, method)


def _draw_for_a_lattice(rng: np.random.Generator) -> Case:
    """Return a case that a lattice may sum."""
    dtype: type[np.floating] = np.float32 if rng.random() < 0.3 else np.float64
    d, n = int(rng.integers(1, 4)), int(10 ** rng.uniform(0, 4.3))
    rtol = float(rng.choice([10 ** rng.uniform(-7, -0.3), 1e-3, 1e-2, 0.0]))
    atol = float(rng.choice([0.0, 0.0, 10 ** rng.uniform(-6, 3)])) if rtol else 1e-3
    h = 10.0 ** rng.uniform(-2, 1.5)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.choice([0, 0, 1])
    shape = rng.choice(["normal", "cells", "clusters", "cauchy", "duplicates", "line", "tight"])
    if shape == "cells":  # on the borders of cells, which begin at the least coordinates
        found = plans(d, min(max(rtol, 1e-9), 0.3), 2.0 * int(1.5 + np.log(n) / 2))
        unit = found[rng.integers(len(found))].spacing * h if found else 0.4 * h
        X = np.round(X / unit / rng.choice([1, 1, 3])) * unit
        X = np.nextafter(X, rng.choice([-np.inf, 0.0, np.inf], X.shape))
    elif shape == "clusters":
        X = X + h * 10.0 ** rng.uniform(0, 6) * rng.integers(0, 2, (n, 1))
    elif shape == "cauchy":
        X = np.clip(X / rng.standard_normal((n, 1)), -1e6, 1e6)
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "line":
        X = X[:, :1] * rng.standard_normal(d)
    elif shape == "tight":
        X = h * X * 10.0 ** rng.uniform(-8, 0) + rng.choice([0, 1, 1e6]) * h
    most = 150 if dtype == np.float64 else 13
    scale = 10.0 ** rng.choice([0, rng.uniform(-8, 8), rng.uniform(-most, most - 12)])
    steps = h * 10.0 ** rng.choice([-3, 0, rng.uniform(0, 3.2)], (600, 1))
    queries = X[rng.integers(0, n, 600)] + steps * rng.standard_normal((600, d))
    inside = rng.random((600, 1)) < rng.choice([0, 0.5])  # anywhere in the box
    anywhere = X.min(axis=0) + np.ptp(X, axis=0) * rng.random((600, d))
    queries = np.where(inside, anywhere, queries)
    query = None if rng.random() < 0.4 else (queries * scale).astype(dtype)
    bandwidth: Any = float(dtype(scale * h))
    if rng.random() < 0.1:
        bandwidth = bandwidth * 10.0 ** rng.uniform(-1, 1, d)
    method = str(rng.choice(["grid", "grid", "auto"]))
    X = (scale * X).astype(dtype)
    return Case(X, query, _weights(rng, n), bandwidth, "gaussian", rtol, atol, method)


def _weights(rng: np.random.Generator, n: int) -> np.ndarray | None:
    """Return weights (n,), or None."""
    kind = rng.choice(["none", "some zero", "uniform", "wide", "widest", "one large"])
    if kind == "none":
        return None
    if kind == "some zero":
        return np.maximum(rng.integers(0, 3, n), np.arange(n) == 0).astype(float)
    if kind == "one large":
        return np.where(np.arange(n) == rng.integers(n), 1.0, 1.02 * 2**-53 / 576)
    span = {"uniform": 0, "wide": 20, "widest": 150}[str(kind)]
    return 10.0 ** rng.uniform(-span, span, n) * rng.random(n) + 5e-324


def reference(case: Case, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log sums at the `judged` queries (m,) in the widest floats, and their errors."""
    X, points = case.X.astype(WIDE), (case.X if case.query is None else case.query)[judged]
    d, bandwidth, inverse = X.shape[1], np.asarray(case.bandwidth, WIDE), None
    lost = _EPS * (d + 12)
    if bandwidth.ndim == 2:
        inverse, size = np.linalg.inv(case.bandwidth).astype(WIDE), np.eye(d, dtype=WIDE)
        for _ in range(6):  # Newton's iteration
            inverse = inverse @ (2 * size - bandwidth @ inverse)
        lost += 10 * d * _EPS * float(np.linalg.cond(case.bandwidth))
    log_w = np.zeros(len(X), WIDE)
    if case.weights is not None:
        with np.errstate(divide="ignore"):
            log_w = np.log(case.weights.astype(WIDE))
    logs = np.empty(len(points), WIDE)
    step = max(1, _PAIRS // (len(X) * d))
    for first in range(0, len(points), step):
        rows = points[first : first + step].astype(WIDE)
        gaps = rows[:, None] - X
        if inverse is None:
            s = ((gaps / bandwidth) ** 2).sum(axis=2)
        else:
            s = np.maximum(np.einsum("ijk,ijk->ij", gaps @ inverse, gaps), 0)
        log_k = _log_kernel(case.kernel, s) + log_w
        if case.query is None:
            log_k[np.arange(len(rows)), judged[first : first + step]] = -np.inf
        top = log_k.max(axis=1)
        top = np.where(np.isfinite(top), top, 0)
        with np.errstate(divide="ignore"):
            logs[first : first + step] = top + np.log(np.exp(log_k - top[:, None]).sum(axis=1))
    total = float(np.log(np.exp(log_w - log_w.max()).sum()) + log_w.max())
    finite = np.where(np.isfinite(logs), logs, 0).astype(float)
    return logs, lost * (1 + np.abs(finite) + np.maximum(0, total - finite) + np.log2(len(X)))


def _log_kernel(name: str, s: np.ndarray) -> np.ndarray:
    """Return the log of a kernel of squared distances in units of the bandwidth."""
    r, inside = np.sqrt(s), s < 1
    if name in ("gaussian", "exponential"):
        return -s / 2 if name == "gaussian" else -r
    value = {
        "tophat": np.ones_like(s),
        "epanechnikov": 1 - s,
        "biweight": (1 - s) ** 2,
        "linear": 1 - r,
        "cosine": np.cos(np.pi * r.astype(np.float64) / 2).astype(WIDE),
    }[name]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside, np.log(np.where(inside, value, 1)), -np.inf)


class Found(NamedTuple):
    """How a case ended."""

    refused: bool
    broken: bool
    share: float  # of the bound that the error took


def run(seed: int) -> tuple[int, str, Found]:
    """Return the seed of a case, its kernel, and how it ended."""
    case = draw(seed)
    how: dict[str, Any] = {
        name: getattr(case, name) for name in ("kernel", "bandwidth", "weights", "rtol", "method")
    }
    try:
        got, lower, upper = kernel_sums(
            case.X, case.query, atol=case.atol, return_bounds=True, **how
        )
    except ValueError:
        return seed, case.kernel, Found(True, False, 0.0)
    if not ((lower <= got) & (got <= upper)).all():
        return seed, case.kernel, Found(False, True, np.inf)
    judged = np.random.default_rng(seed).permutation(len(got))[:_JUDGED]
    got, lower, upper = got[judged], lower[judged], upper[judged]
    exact, own = reference(case, judged)
    if case.kernel == "cosine":  # its reference takes the cosine in float64
        own = own + 1e-14
    with np.errstate(invalid="ignore"):
        broken = ~((lower <= exact + own) & (exact - own <= upper))
        room = np.where(exact > got, upper - got, got - lower).astype(float)
        shares = np.abs(exact - got).astype(float) / room
    shares = shares[np.isfinite(shares)]
    return seed, case.kernel, Found(False, bool(broken.any()), float(shares.max(initial=0.0)))


def _cases(seeds: Iterator[int], jobs: int) -> Iterator[tuple[int, str, Found]]:
    """Yield how cases end, in the order of their seeds."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        while chunk := list(itertools.islice(seeds, 4 * jobs * _AT_ONCE)):
            yield from pool.imap(run, chunk, chunksize=_AT_ONCE)


def main() -> int:
    """Run the attack from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--cases", type=int, default=None, metavar="N", help="so many cases")
    parser.add_argument("--seconds", type=float, default=np.inf, help="or as many as fit in")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--state", type=Path, metavar="FILE", help="kept there, and gone on from")
    options = parser.parse_args()
    state: dict[str, Any] = {"next": options.seed, "kernels": {}, "broken": []}
    if options.state is not None and options.state.exists():
        state = json.loads(options.state.read_text())
    if options.cases is None and not np.isfinite(options.seconds):
        options.cases = 2000
    began = saved = time.monotonic()
    seeds = itertools.count(state["next"])
    for seed, kernel, found in _cases(itertools.islice(seeds, options.cases), options.jobs):
        counts = state["kernels"].setdefault(kernel, {"cases": 0, "refused": 0, "share": 0.0})
        counts["cases"] += 1
        counts["refused"] += found.refused
        counts["share"] = max(counts["share"], found.share)
        if found.broken:
            state["broken"].append(seed)
            print(f"broken: seed {seed}, {draw(seed)[3:]}", flush=True)
        state["next"] = seed + 1
        if time.monotonic() - began > options.seconds:
            break
        if options.state is not None and time.monotonic() - saved > 30:
            options.state.write_text(json.dumps(state))
            saved = time.monotonic()
    if options.state is not None:
        options.state.write_text(json.dumps(state))
    print(f"{'kernel':14}{'cases':>8}{'refused':>9}{'worst share of the bound':>26}")
    for kernel, counts in sorted(state["kernels"].items()):
        print(f"{kernel:14}{counts['cases']:8}{counts['refused']:9}{counts['share']:26.3f}")
    total = sum(counts["cases"] for counts in state["kernels"].values())
    print(f"{total} cases, seeds up to {state['next'] - 1}, {len(state['broken'])} broken")
    return int(bool(state["broken"]))


if __name__ == "__main__":
    raise SystemExit(main())
