"""Sums of Gaussians by products of matrices: the certificate, and what it rests on."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastmetric import kernel_sums
from fastmetric.core.error_bounds import (
    E_STEPS,
    LOCAL_GAUSSIANS,
    PAIR_GRADIENTS,
    product_rounding,
)
from fastmetric.core.pairs import product_tiles
from fastmetric.learn.kernel_sums import log_sums as densities
from fastmetric.learn.kernel_sums import product_blocks, product_plan
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.kernel_sums.product_sums import ProductSums
from fastmetric.learn.kernel_sums.sum_problem import SumProblem
from tests.learn.test_certificate import promise
from tests.learn.test_kernel_sums import Case, truth
from tests.twins import pairs as naive
from tests.twins.density import WIDE


@contextmanager
def by_products(found=None):
    """Let all sums over all pairs go by products; `found` gets the ways."""

    def choose(problem, ways, method, n_jobs):
        way = ProductSums(problem, n_jobs)
        if found is not None:
            found.append(way)
        return way

    with patch.object(densities, "choose", choose):
        yield


@st.composite
def cases(draw, max_n=130, dimensions=(16, 17, 30, 64, 131)):
    """Draw what may break a bound: see the branches."""
    n, d = draw(st.integers(1, max_n)), draw(st.sampled_from(dimensions))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    X = rng.standard_normal((n, d))
    shape = draw(
        st.sampled_from(
            ["normal", "lattice", "duplicates", "clusters", "line", "one point", "outliers"]
        )
    )
    if shape == "lattice":
        X = np.round(2 * X) / 2
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "clusters":
        X += 10.0 ** draw(st.floats(0, 6)) * rng.integers(0, 3, (n, 1))
    elif shape == "line":
        X = X[:, :1] * np.ones(d)
    elif shape == "one point":
        X[:] = X[0]
    elif shape == "outliers":
        X[rng.random(n) < 0.05] *= 10.0 ** draw(st.floats(0, 8))
    X += draw(st.sampled_from([0, 0, 1, 1e4])) * rng.standard_normal(d)
    most = 150 if dtype == np.float64 else 12
    scale = 10.0 ** draw(st.sampled_from([0, 0, -most, most - 12]))
    h = 10.0 ** draw(st.floats(-1, 1.5)) * np.sqrt(d)
    where = draw(st.sampled_from(["leave one out", "the points", "near", "far"]))
    query = {
        "leave one out": None,
        "the points": X,
        "near": X[: max(1, n // 2)] + h / np.sqrt(d) * rng.standard_normal((max(1, n // 2), d)),
        "far": X[:7] + 10.0 ** draw(st.floats(0, 3)) * h / np.sqrt(d),
    }[where]
    kind = draw(st.sampled_from(["none", "none", "equal", "some zero", "wide", "widest"]))
    weights = {
        "none": None,
        "equal": np.full(n, 0.3),
        "some zero": rng.integers(0, 3, n).astype(float),
        "wide": 10.0 ** rng.uniform(-60, 60, n),
        "widest": 10.0 ** rng.uniform(-300, 300, n),
    }[kind]
    if weights is not None and weights.max() == 0:
        weights[0] = 1.0
    rtol = draw(st.sampled_from([0.0, 0.0, 0.0, 1e-6, 1e-4, 1e-2, 0.3]))
    query = None if query is None else (scale * query).astype(dtype)
    h = float(dtype(scale * h))
    return Case((scale * X).astype(dtype), weights, query, "gaussian", h, rtol, 0.0, "exact")


def check(case):
    """Assert the promise and the certificate of sums by products."""
    d, dtype = case.X.shape[1], case.X.dtype
    with by_products(), patch.object(product_blocks, "_TILE", (32, 64)):
        got, lower, upper = KernelSums(case.X, case.weights, bandwidth=case.h, n_jobs=1).log_sums(
            case.query, rtol=case.rtol
        )
    exact = truth(case)
    assert np.all((lower <= exact) & (exact <= upper))
    assert np.array_equal(np.isneginf(got), np.isneginf(exact))
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    units = np.log([1.0, weights.max(), weights.sum()])
    there = np.isfinite(exact)
    got, lower, upper = got[there], lower[there], upper[there]
    size = np.abs(exact[there] - units[:, None]).max(axis=0).astype(float)
    rounding = 8 * np.finfo(dtype).eps * (d + size)
    assert np.all(np.abs(got - exact[there]) <= -np.log1p(-case.rtol) + rounding)
    if case.rtol == 0 and np.ptp(np.frexp(weights[weights > 0])[1]) < 40:
        assert np.all(upper - lower <= 2 * rounding)


@settings(max_examples=250)
@given(cases())
def test_promise_and_bounds_hold_for_any_input(case):
    check(case)


@settings(max_examples=40)
@given(cases(max_n=40, dimensions=(300, 784, 800)))
def test_promise_and_bounds_hold_in_hundreds_of_dimensions(case):
    check(case)


@pytest.mark.long
@settings(max_examples=20_000)
@given(cases())
def test_promise_and_bounds_hold_in_many_trials(case):
    check(case)


def test_check_can_fail(monkeypatch):
    rng = np.random.default_rng(0)
    case = Case(rng.standard_normal((300, 64)), None, None, "gaussian", 1.5, 0.0, 0.0, "exact")
    check(case)
    monkeypatch.setattr(product_plan, "product_rounding", lambda *args: 0.0)
    offset = case._replace(X=case.X + 1e4 * (np.arange(300) % 2)[:, None])
    with pytest.raises(AssertionError):
        check(offset)


@settings(max_examples=200)
@given(
    st.integers(1, 400),
    st.sampled_from([np.float64, np.float32]),
    st.floats(-3, 3),
    st.floats(0, 4),
    st.integers(0, 2**32 - 1),
)
def test_exponents_are_within_their_bound(d, dtype, log_scale, offset, seed):
    rng = np.random.default_rng(seed)
    X, query = rng.standard_normal((9, d)) + offset, rng.standard_normal((7, d)) - offset
    X[3] = query[2]
    center, scale = rng.standard_normal(d), 10.0**log_scale
    sides = []
    for rows in (query, X):
        out = np.empty(rows.shape, dtype)
        sides.append((out, product_tiles.centred_rows(rows, center, scale, 0.5, out)))
    (rows, row_halves), (cols, col_halves) = sides
    tile, least, across = rows @ cols.T, np.empty(7, dtype), np.empty(9, dtype)
    halves = [part.astype(dtype) for part in (row_halves, col_halves)]
    product_tiles.exponents_of(tile, *halves, least, across)
    gaps = (query.astype(WIDE)[:, None] - X) * WIDE(0.5) * WIDE(scale)
    exact = (gaps**2).sum(axis=2) / 2
    sizes = row_halves[:, None] + col_halves
    assert np.all(np.abs(tile - exact) <= product_rounding(d, 1, np.finfo(dtype).eps) * sizes)
    assert np.array_equal(least, tile.min(axis=1))
    assert np.array_equal(across, tile.min(axis=0))


@settings(max_examples=200)
@example(32, 1684679.7152108464, 0)
@given(st.integers(1, 900), st.floats(1e-3, 1e6), st.integers(0, 2**32 - 1))
def test_squared_distances_are_within_ten_units(d, gap, seed):
    rng = np.random.default_rng(seed)
    for x in (np.full(d, gap), gap * rng.standard_normal(d)):
        z = np.zeros(d) if seed % 2 else rng.standard_normal(d)
        found = product_tiles._sq_distance(x, z, 1.0, np.empty((3, 8)))
        exact = ((x.astype(WIDE) - z) ** 2).sum()
        assert np.abs(found - exact) <= 10 * 2.0**-53 * exact


@pytest.mark.parametrize("rtol", [0.0, 1e-2])
@pytest.mark.parametrize("queries", ["points", "left out", "others"])
@pytest.mark.parametrize("h", [1.0, 3.0, 9.0])
def test_large_sums_equal_those_by_differences(rtol, queries, h):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1100, 40))
    query = {"points": X, "left out": None, "others": rng.standard_normal((700, 40))}[queries]
    found = []
    with by_products(found):
        got, lower, upper = KernelSums(X, bandwidth=h).log_sums(query, rtol=rtol)
    few = slice(0, 40)
    s = naive.sq_distances((X if query is None else query)[few], X) / (2 * WIDE(h) ** 2)
    if query is None:
        np.fill_diagonal(s, np.inf)
    exact = np.array([naive.log_sum_exp(-row) for row in s])
    assert np.all((lower[few] <= exact) & (exact <= upper[few]))
    allowed = -np.log1p(-rtol) + promise(exact, 40, 1100, np.float64)
    assert np.all(np.abs(got[few] - exact) <= allowed)
    assert (found[0].plan.dtype == np.float32) is (rtol > 0)


@pytest.mark.parametrize("queries", ["points", "left out", "others"])
@pytest.mark.parametrize("rtol", [0.0, 1e-2])
def test_same_bits_for_every_number_of_threads(queries, rtol):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1500, 33))
    query = {"points": X, "left out": None, "others": rng.standard_normal((900, 33))}[queries]
    found = []
    for n_jobs in (1, 2, 5):
        with by_products():
            found.append(KernelSums(X, bandwidth=1.2, n_jobs=n_jobs).log_sums(query, rtol=rtol))
    for other in found[1:]:
        assert np.array_equal(found[0], other)


def test_sums_with_too_many_terms_that_count_go_by_differences():
    """At a bandwidth at which all terms count, and products are off by more than is allowed."""
    X = np.random.default_rng(0).standard_normal((1000, 16)) * 3
    found = []
    with by_products(found):
        got = KernelSums(X, bandwidth=5.0).log_sums()
    assert found[0].given_up == 1000
    assert np.array_equal(got.estimate, kernel_sums(X, bandwidth=5.0, method="exact"))


@pytest.mark.parametrize("queries", ["points", "left out", "others"])
def test_outliers_leave_the_other_sums_to_products(queries):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 32))
    X[::300] *= 10.0 ** np.arange(2, 9)[:, None]
    query = {"points": X, "left out": None, "others": rng.standard_normal((900, 32))}[queries]
    for rtol in (0.0, 1e-2):
        found = []
        with by_products(found):
            KernelSums(X, bandwidth=0.35).log_sums(query, rtol=rtol)
        assert found[0].given_up <= 60


def test_rows_that_overflow_go_by_differences():
    X = np.random.default_rng(0).standard_normal((60, 20))
    X[0] = 1e152
    case = Case(X, None, None, "gaussian", 1.0, 0.0, 0.0, "exact")
    check(case)
    check(case._replace(rtol=1e-2))
    check(case._replace(X=np.r_[X[1:], np.full((1, 20), 1e18)].astype(np.float32)))


@pytest.mark.parametrize("rtol", [0.0, 1e-2])
def test_sums_far_in_the_tails_are_certified(rtol):
    X = np.random.default_rng(0).standard_normal((80, 30))
    query = X[:20] + 1414.0 / np.sqrt(30) * np.sqrt(10)
    case = Case(X, None, query, "gaussian", 1.0, rtol, 0.0, "exact")
    assert truth(case).max() < -1e6
    check(case)


def test_tiles_are_split_where_norms_are_apart():
    halves = np.r_[np.ones(50), 5.0, 100.0, 1e4, 1e9]
    ends = {0, *product_blocks._breaks(halves), len(halves)}
    for first, last in zip(sorted(ends), sorted(ends)[1:], strict=False):
        part = halves[first:last]
        assert part[-1] <= 16.001 * max(part[0], 1.0)
    assert product_blocks._breaks(np.ones(50)) == []


METHODS = [
    # n, queries, d, bandwidth, rtol, way
    (511, 511, 60, 0.5, 0.0, "ExactWalk"),
    (1000, 511, 60, 0.5, 0.0, "ExactWalk"),
    (1000, 1000, 15, 0.5, 0.0, "ExactWalk"),
    (1000, 1000, 60, 0.5, 0.0, "ProductSums"),  # few terms count
    (1000, 1000, 60, 0.5, 1e-2, "ProductSums"),
    (1000, 1000, 60, 1.8, 0.0, "ExactWalk"),  # many terms count, and products are off by too much
    (1000, 1000, 60, 1.8, 1e-2, "ProductSums"),
    (1000, 1000, 60, 3.6, 0.0, "ProductSums"),  # products are within what is allowed
    (1000, 1000, 60, 1e-4, 0.0, "ProductSums"),
    (1000, 1000, 60, 1e-12, 0.0, "ExactWalk"),  # exponents are off by more than 1
]


@pytest.mark.parametrize(("n", "m", "d", "h", "rtol", "way"), METHODS)
@pytest.mark.parametrize("method", ["auto", "exact"])
def test_products_are_chosen_where_they_are_cheaper(n, m, d, h, rtol, way, method):
    rng = np.random.default_rng(0)
    sums = KernelSums(rng.standard_normal((n, d)), bandwidth=h)
    query = rng.standard_normal((m, d))
    problem = SumProblem(sums, query, sums._rule(rtol, 0.0))
    assert type(densities.choose(problem, densities.WAYS, method)).__name__ == way


@pytest.mark.parametrize("tolerance", [E_STEPS, LOCAL_GAUSSIANS, PAIR_GRADIENTS])
def test_products_without_a_certificate_are_allowed_by_size(tolerance):
    for dtype, allowed in ((np.float64, tolerance.float64), (np.float32, tolerance.float32)):
        size = allowed / float(np.finfo(dtype).eps)
        assert tolerance.allows(0.99 * size, np.dtype(dtype))
        assert not tolerance.allows(1.01 * size, np.dtype(dtype))
        assert not tolerance.allows(np.inf, np.dtype(dtype))
        assert not tolerance.allows(np.nan, np.dtype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", ["duplicates", "wide"])
def test_no_warning_where_all_exponents_are_alike(way, dtype):
    X = np.random.default_rng(0).standard_normal((600, 16)).astype(dtype)
    if way == "duplicates":
        X[:] = X[0]
    h = {"duplicates": 1.0, "wide": 1e7}[way]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("exact", "auto"):
            found = kernel_sums(np.tile(X, (2, 1)), bandwidth=h, method=method)
            assert np.isfinite(found).all()
