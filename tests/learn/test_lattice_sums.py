"""Sums of Gaussians on a lattice: the formula, the bounds, and what the chooser makes of them."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmetric import KernelDensity, kernel_sums
from fastmetric.core.lattice.reading import Margins
from fastmetric.learn.kernel_sums import lattice_sums
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.lattices import point_lattice
from fastmetric.learn.lattices.lattice_plan import Plan, plans, shares
from fastmetric.learn.lattices.lattice_taps import moments, taps
from fastmetric.learn.lattices.nearby_points import Negligible, nearby_points
from fastmetric.learn.lattices.point_lattice import NO_WEIGHTS, Box, PointLattice, box_of
from tests.twins.lattice import lattice_kernel

WIDE = np.longdouble


def _reference(X, query, weights, h):
    """Return log sums in wide arithmetic, each point left out of its own if `query` is None."""
    points = X if query is None else query
    s = (((points.astype(WIDE)[:, None] - X.astype(WIDE)) / WIDE(h)) ** 2).sum(axis=2) / 2
    with np.errstate(divide="ignore"):
        logs = -s + (0 if weights is None else np.log(weights.astype(WIDE)))
        if query is None:
            np.fill_diagonal(logs, -np.inf)
        top = np.where(np.isfinite(logs.max(axis=1)), logs.max(axis=1), 0)
        return top + np.log(np.exp(logs - top[:, None]).sum(axis=1))


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("rtol", [1e-1, 1e-3, 1e-6])
def test_a_lattice_has_the_kernel_of_the_formula(d, rtol):
    rng = np.random.default_rng(d)
    x, queries = rng.random((1, d)), rng.random((1, d)) + rng.normal(size=(40, d))
    for plan in plans(d, rtol, 10.0):
        box = box_of(np.concatenate([x, queries]))
        lattice = PointLattice(plan, rtol, box, 1.0, 1)
        sorting = lattice.sorting(x)
        values = lattice.spread(x, np.ones(1), sorting)
        exactly = Margins(np.array([[1.0, 0.0]]), 1.0, 0.0, 0.0, 0.0, 0.0)
        got = lattice.read(values, queries, sorting, NO_WEIGHTS, exactly)[0]
        twin = [lattice_kernel(x[0], y, plan, lattice.lattice.origin[3 - d :]) for y in queries]
        error = 2 * d * lattice.taps.error + 1e-10
        np.testing.assert_allclose(got, twin, rtol=error, atol=1e-300)


@given(
    st.sampled_from([4, 6, 8, 10, 12]),
    st.floats(0.1, 0.8),
    st.floats(0.75, 2.0),
    st.integers(1, 40),
    st.floats(0, 8),
    st.floats(0, 1),
)
def test_the_kernel_of_a_lattice_is_within_its_shares(width, spacing, ratio, reach, r, offset):
    sigma = min(spacing / ratio, 0.6)
    found = shares(np.array([r]), width, spacing, sigma, reach)
    plan = Plan(width, spacing, sigma, reach, (), 1.0)
    x = np.array([offset * spacing])
    relative = lattice_kernel(x, x + r, plan, np.zeros(1)) / np.exp(-(r**2) / 2)
    assert relative <= (1 + found.smooth) * (1 + 1e-9)
    assert relative >= found.reading - found.cut[0] - 1e-9


CASES = dict(
    n=st.integers(1, 300),
    log_h=st.floats(-2.0, 1.0),
    log_rtol=st.floats(-6.5, -0.5),
    atol=st.sampled_from([0.0, 0.0, 1e-4]),
    log_scale=st.sampled_from([0.0, 0.0, -150.0, 140.0, -8.0, 8.0]),
    shape=st.sampled_from(["normal", "lattice", "duplicates", "clusters", "line", "cauchy"]),
    weights=st.sampled_from([None, 0.0, 5.0, 300.0]),
    dtype=st.sampled_from([np.float64, np.float32]),
    leave_one_out=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@settings(max_examples=60)
@given(d=st.integers(1, 3), **CASES)
def test_bounds_and_tolerance_hold(
    d, n, log_h, log_rtol, atol, log_scale, shape, weights, dtype, leave_one_out, seed
):
    rng = np.random.default_rng(seed)
    if dtype == np.float32:
        log_scale = np.clip(log_scale, -8, 8)
    h, scale = 10.0**log_h, 10.0**log_scale
    X = rng.standard_normal((n, d))
    if shape == "lattice":  # cells' borders are the lattice's own
        plan = plans(d, 10.0**log_rtol, 10.0)
        X = np.round(X / h) * h * (plan[0].spacing if plan else 0.5)
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "clusters":
        X = X + 1e6 * h * rng.integers(0, 2, (n, 1))
    elif shape == "line":
        X[:, 1:] = X[:, :1]
    elif shape == "cauchy":
        X = X / np.maximum(1e-3, np.abs(rng.standard_normal((n, 1))))
    X = (X * scale).astype(dtype)
    h = float(dtype(h * scale))
    steps = rng.standard_normal((60, d)) * 10.0 ** rng.uniform(-3, 3, (60, 1))
    away = X[rng.integers(0, n, 60)] + (h * steps).astype(dtype)
    query = None if leave_one_out else np.concatenate([X[:20], away])
    w = None if weights is None else 10.0 ** (weights * (rng.random(n) - 0.5))
    rtol = 10.0**log_rtol
    got, lower, upper = kernel_sums(
        X, query, bandwidth=h, weights=w, rtol=rtol, atol=atol, method="grid", return_bounds=True
    )
    exact = _reference(X, query, w, h)
    assert np.all((lower <= exact) & (exact <= upper) & (lower <= got) & (got <= upper))
    there = np.isfinite(exact)
    logs = exact[there].astype(float)
    # Relative to the sum: the tolerance, and 8 eps (d + |log S|), with log(W / S) for |log S|.
    total = float(np.log(n if w is None else w.sum()))
    size = np.maximum(np.abs(logs), total - logs)
    rounding = 8 * np.finfo(dtype).eps * (d + size)
    with np.errstate(over="ignore"):
        allowed = rtol + (atol * np.exp(-logs) if atol else 0.0)
        off = np.abs(np.expm1(np.clip(got[there] - logs, -700, 700)))
        assert np.all(off <= allowed + (1 + allowed) * np.expm1(rounding))


@settings(max_examples=60)
@given(**CASES)
def test_bounds_and_tolerance_hold_where_points_are_gathered_as_moments(**case):
    with patch.object(point_lattice, "_CROWDED", 0):
        test_bounds_and_tolerance_hold.hypothesis.inner_test(d=1, **case)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rtol", [1e-1, 1e-3, 1e-5])
def test_moments_of_crowded_points_are_their_taps(rtol, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 1))
    weights = rng.random(len(X)) if weighted else np.ones(1)
    plan = plans(1, rtol, 10.0)[0]
    gathered = PointLattice(plan, rtol, box_of(X), 1.0, 2)
    assert gathered._moments(len(X)) is not None
    with patch.object(point_lattice, "_CROWDED", math.inf):
        plain = PointLattice(plan, rtol, box_of(X), 1.0, 2)
        by_taps = plain.spread(X, weights, plain.sorting(X))
    by_moments = gathered.spread(X, weights, gathered.sorting(X))
    error = moments(plan, rtol).error + gathered.taps.error
    assert error < 0.05 * rtol
    np.testing.assert_allclose(by_moments, by_taps, rtol=error + 1e-12, atol=0)


@pytest.mark.parametrize("resident", [0, 1 << 17])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_same_bits_on_any_number_of_threads(d, resident, monkeypatch):
    monkeypatch.setattr(point_lattice, "_RESIDENT", resident)
    monkeypatch.setattr(point_lattice, "_POINTS", 1000)
    X = np.random.default_rng(0).standard_normal((20_000, d))
    sums = [
        kernel_sums(X, bandwidth=0.1, rtol=1e-2, method="grid", n_jobs=jobs) for jobs in (1, 2, 3)
    ]
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])
    exact = kernel_sums(X, X[:50] + 1e-9, bandwidth=0.1)
    near = kernel_sums(X, X[:50] + 1e-9, bandwidth=0.1, rtol=1e-2, method="grid")
    np.testing.assert_allclose(near, exact, atol=1.01e-2)


def test_only_queries_without_a_certificate_are_walked(monkeypatch):
    X = np.random.default_rng(0).standard_normal((5000, 2))
    query = np.concatenate([X[:500], [[60.0, 60.0], [0.0, 9.0]]])
    walked = []
    log_sums = lattice_sums.LatticeSums.log_sums

    def spy(self, *args):
        found = log_sums(self, *args)
        walked.append(self.walked)
        return found

    monkeypatch.setattr(lattice_sums.LatticeSums, "log_sums", spy)
    got = kernel_sums(X, query, bandwidth=0.3, rtol=1e-3, method="grid")
    assert walked == [2]
    np.testing.assert_allclose(got, kernel_sums(X, query, bandwidth=0.3), atol=1.01e-3)


def test_queries_need_no_tree():
    X = np.random.default_rng(0).standard_normal((3000, 2))
    sums = KernelSums(X, bandwidth=0.3)
    sums.log_sums(X + 0.01, rtol=1e-2, method="grid")
    assert not sums.has_tree


@pytest.mark.parametrize(
    ("n", "d", "h", "rtol", "method"),
    [
        (20_000, 1, 0.1, 1e-2, "grid"),
        (20_000, 2, 0.1, 1e-2, "grid"),
        (20_000, 3, 0.2, 1e-2, "grid"),
        (20_000, 4, 0.3, 1e-2, "tree"),
        (20_000, 2, 0.1, 0.0, "tree"),  # exact sums
        (20_000, 2, 1e-5, 1e-2, "tree"),  # too many cells
        (500, 2, 0.1, 1e-2, "exact"),
    ],
)
def test_auto_takes(n, d, h, rtol, method, monkeypatch):
    X, taken = np.random.default_rng(0).standard_normal((n, d)), []
    choose = lattice_sums.choose

    def spy(*args, **options):
        way = choose(*args, **options)
        taken.append(way.method)
        return way

    monkeypatch.setattr("fastmetric.learn.kernel_sums.log_sums.choose", spy)
    kernel_sums(X, bandwidth=h, rtol=rtol)
    assert taken[0] == method


def test_a_lattice_of_outliers_stays_small():
    X = np.random.default_rng(0).standard_normal((3000, 3))
    X[0] = 1e9
    got = kernel_sums(X, bandwidth=0.5, rtol=1e-2, method="grid")
    np.testing.assert_allclose(got, kernel_sums(X, bandwidth=0.5), atol=1.01e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(kernel="tophat", rtol=0.1), "kernel='tophat'"),
        (dict(), "rtol=0.0 and atol=0.0"),
    ],
)
def test_a_grid_says_what_it_cannot_do(options, message):
    X = np.zeros((5, 2))
    with pytest.raises(ValueError, match=message):
        kernel_sums(X, method="grid", **options)
    with pytest.raises(ValueError, match=message):
        KernelDensity(method="grid", **options).fit(X)


def test_a_grid_has_at_most_three_dimensions():
    with pytest.raises(ValueError, match="X has 4 features"):
        kernel_sums(np.zeros((5, 4)), method="grid", rtol=0.1)
    with pytest.raises(ValueError, match="X has 4 features"):
        KernelDensity(method="grid", rtol=0.1).fit(np.zeros((5, 4)))


def test_taps_of_a_plan_are_within_their_error():
    for d, rtol in ((1, 1e-1), (2, 1e-3), (3, 1e-6)):
        for plan in plans(d, rtol, 10.0):
            made = taps(plan, rtol)
            g = np.linspace(-0.5, 0.5, 2001)[:, None]
            table = np.concatenate(list(made.stencil.coefficients), axis=1)[:, : plan.width]
            got = sum(row * g ** (len(table) - 1 - k) for k, row in enumerate(table))
            places = np.arange(plan.width) - plan.width / 2 + 0.5
            exact = np.exp(-(((places - g) * plan.spacing / plan.sigma) ** 2) / 2)
            assert np.all(np.abs(got / exact - 1) <= made.error + made.rounding)
            assert made.error <= rtol


@given(
    d=st.integers(1, 3),
    n=st.integers(2, 200),
    log_spread=st.floats(-1, 2),
    log_away=st.floats(-1, 2.5),
    log_share=st.floats(-60, -1),
    offset=st.sampled_from([0.0, 1e6]),
    leave_out=st.booleans(),
    sums_known=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_points_that_are_not_nearby_add_at_most_their_bound(
    d, n, log_spread, log_away, log_share, offset, leave_out, sums_known, seed
):
    rng = np.random.default_rng(seed)
    X = offset + 10**log_spread * rng.standard_normal((n, d))
    plan = plans(d, 1e-2, 4.0)[0]
    lattice = PointLattice(plan, 1e-2, box_of(X), 1.0, 1)
    query = X + 10**log_away * rng.standard_normal((n, d)) * (not leave_out)
    if sums_known:
        away = ((query[:, None] - X) ** 2).sum(axis=2)
        of_sums = log_share + np.log(np.exp(-away / 2).mean(axis=1) + 1e-300)
        found = nearby_points(lattice, X, query, Negligible(np.nan, of_sums), leave_out)
        if found is not None:
            gone = np.delete(away, found.numbers, axis=1)
            assert np.all(-gone.min(axis=1, initial=np.inf) / 2 <= found.log_left_out)
            assert np.all(found.log_left_out <= of_sums + 1e-9)
        return
    found = nearby_points(lattice, X, query, Negligible(log_share), leave_out)
    assert found is not None
    away = ((query[:, None] - X) ** 2).sum(axis=2)
    if leave_out:
        np.fill_diagonal(away, np.inf)
    nearest, gone = away.min(axis=1), np.delete(away, found.numbers, axis=1)
    if gone.shape[1]:
        assert np.all(-gone.min(axis=1) / 2 <= found.log_left_out)
    # As few as was asked for, relative to the nearest point.
    assert np.all(found.log_left_out <= log_share - nearest / 2 + 1e-6 * (1 + nearest))


def test_sums_in_the_tails_are_over_few_points(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 2))
    query = 12 * (rng.random((2000, 2)) - 0.5)
    asked = []
    among = KernelSums.among

    def spy(self, numbers):
        asked.append(len(numbers))
        return among(self, numbers)

    monkeypatch.setattr(KernelSums, "among", spy)
    for weights in (None, 10.0 ** rng.uniform(-3, 3, len(X))):
        how = dict(bandwidth=0.15, weights=weights)
        got, lower, upper = kernel_sums(
            X, query, rtol=1e-3, method="grid", return_bounds=True, **how
        )
        exact = kernel_sums(X, query, **how)
        assert np.all((lower <= exact + 1e-9) & (exact - 1e-9 <= upper))
        np.testing.assert_allclose(got, exact, atol=1.001e-3, rtol=0)
    assert len(asked) == 2
    assert max(asked) < 0.5 * len(X)


def test_a_box_of_rows_is_that_of_all_blocks():
    X = np.random.default_rng(0).standard_normal((300_000, 2)).astype(np.float32)
    box = box_of(X, 2)
    assert isinstance(box, Box)
    np.testing.assert_array_equal(box.lower, X.min(axis=0))
    np.testing.assert_array_equal(box.upper, X.max(axis=0))


@pytest.mark.parametrize("place", [1e18, 1e150])
def test_rows_whose_place_is_rounded_by_more_than_a_cell_take_no_lattice(place):
    X = np.full((5000, 2), place)
    got = kernel_sums(X, bandwidth=1.0, rtol=1e-1, method="grid")
    np.testing.assert_allclose(got, np.log(4999), rtol=1e-12)
