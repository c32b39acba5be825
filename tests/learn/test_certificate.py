"""The certificate at scales, weights and numbers of points that break a careless one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastmetric import kernel_sums
from fastmetric.learn.kernel_sums.log_sums import KernelSums, _parts_of_like_weights
from fastmetric.learn.kernel_table import NAMES as KERNELS
from tests.learn.test_kernel_sums import Case, check, truth
from tests.twins.density import WIDE

METHODS = ["exact", "tree"]


def promise(logs, d, n_weights, dtype):
    """Return 8 eps (d + |log S|) for weights whose total in units of the largest is `n_weights`."""
    size = np.maximum(np.abs(logs), np.abs(np.log(n_weights) - logs)).astype(float)
    return 8 * np.finfo(dtype).eps * (d + size)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("scale", "ratio"),
    [(1e-66, 1e200), (1e-17, 1e290), (1e-100, 1e130), (1e-150, 1e30), (1e-140, 1.0), (1e150, 1e99)],
)
def test_bounds_hold_where_weighted_squares_underflow(kernel, method, scale, ratio):
    X = np.r_[np.linspace(0, 10, 400), 1e6][:, None] * (scale if scale < 1e100 else scale * 1e-6)
    h = scale if scale < 1e100 else scale * 1e-6
    weights = np.r_[np.ones(400), ratio]
    check(Case(X, weights, np.array([[0.0], [5 * h]]), kernel, h, 0.0, 0.0, method))
    check(Case(X, weights, None, kernel, h, 1e-3, 0.0, method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_of_any_ratio_are_summed(method, dtype):
    """From the least number to nearly the largest."""
    X = np.arange(9.0)[:, None].astype(dtype) * 10
    weights = np.array([5e-324, 1e-310, 1e-200, 1e-100, 1.0, 1e100, 1e200, 1e300, 1.7e308])
    query = np.r_[X + dtype(1), X - dtype(40)]
    _, lower, upper = kernel_sums(X, query, weights=weights, method=method, return_bounds=True)
    exact = truth(Case(X, weights, query, "gaussian", 1.0, 0, 0, ""))
    assert np.all((lower <= exact) & (exact <= upper))
    assert np.all(upper - lower <= 1e-3 * (1 + np.abs(exact)))


@given(st.lists(st.integers(-1074, 1023), min_size=1, max_size=20), st.integers(1, 500))
def test_parts_of_like_weights_add_up_and_are_alike(exponents, span):
    weights = np.append(np.ldexp(1.0, exponents), 0.0)
    parts = _parts_of_like_weights(weights, span)
    assert np.array_equal(np.sum(parts, axis=0), weights)
    assert np.count_nonzero(parts) == np.count_nonzero(weights)
    for part in parts:
        logs = np.log2(part[part > 0])
        assert np.ptp(logs) < span


def test_many_tiny_weights_are_not_lost_to_one_large_one():
    n = 300_000
    weights = np.full(n, 1.02 * 2**-53 / 576)
    weights[0] = 1
    X = np.linspace(0, 0.5, n)[:, None]
    _, lower, upper = kernel_sums(
        X,
        [[0.25]],
        kernel="tophat",
        bandwidth=10.0,
        weights=weights,
        method="exact",
        return_bounds=True,
    )
    exact = np.log1p((n - 1) * WIDE(weights[1]))
    assert lower <= exact <= upper
    assert upper - lower <= 16 * np.finfo(float).eps


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", [0.3, 0.7, 2.9])
@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("n", [300_000, pytest.param(10_000_000, marks=pytest.mark.long)])
def test_rounding_does_not_grow_with_the_number_of_points(dtype, method, place, spread, n):
    X = np.full((n, 1), place, dtype)
    X += (spread * np.random.default_rng(0).random((n, 1))).astype(dtype)
    got, lower, upper = kernel_sums(X, np.zeros((1, 1), dtype), method=method, return_bounds=True)
    exact = np.log(np.exp(-(X[:, 0].astype(WIDE) ** 2) / 2).sum())
    allowed = promise(exact, 1, n, dtype)
    assert lower <= exact <= upper
    assert np.abs(got - exact) <= allowed
    assert upper - lower <= 2 * allowed


@settings(max_examples=150)
@example(1, 1, 1.5, "gaussian", np.float64, "tree", False, 0)  # an error of the total's last bit
@given(
    st.integers(1, 60),
    st.integers(1, 700),
    st.floats(-1.5, 2.0),
    st.sampled_from(["gaussian", "exponential"]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from(METHODS),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_exact_intervals_are_no_wider_than_twice_the_promise(
    d, n, log_h, kernel, dtype, method, leave_one_out, seed
):
    X = np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)
    query = None if leave_one_out else X[:50] + dtype(0.25)
    h = float(dtype(10.0**log_h))
    got, lower, upper = kernel_sums(
        X, query, kernel=kernel, bandwidth=h, method=method, return_bounds=True
    )
    exact = truth(Case(X, None, query, kernel, h, 0, 0, ""))
    there = np.isfinite(exact)
    assert np.all((lower <= exact) & (exact <= upper))
    allowed = promise(exact[there], d, n, dtype)
    assert np.all(np.abs(got[there] - exact[there]) <= allowed)
    assert np.all(upper[there] - lower[there] <= 2 * allowed)


def _mapped_truth(X, query, bandwidth, kernel):
    """Return log sums for a vector or matrix bandwidth, in wide arithmetic on the numbers given."""
    points = X if query is None else query
    gaps = points.astype(WIDE)[:, None] - X.astype(WIDE)
    if np.ndim(bandwidth) == 1:
        s = ((gaps / np.asarray(bandwidth, WIDE)) ** 2).sum(axis=2)
    else:
        H = np.asarray(bandwidth, WIDE)
        inverse = np.linalg.inv(bandwidth).astype(WIDE)
        for _ in range(5):  # Newton's iteration
            inverse = inverse @ (2 * np.eye(len(H), dtype=WIDE) - H @ inverse)
        s = ((gaps @ inverse) * gaps).sum(axis=2)
    s = np.maximum(s, 0)
    with np.errstate(divide="ignore"):
        log_k = {
            "gaussian": -s / 2,
            "exponential": -np.sqrt(s),
            "biweight": 2 * np.log(np.maximum(1 - s, 0)),
            "tophat": np.where(s < 1, 0, -np.inf),
        }[kernel]
        if query is None:
            np.fill_diagonal(log_k, -np.inf)
        top = np.where(np.isfinite(log_k.max(axis=1)), log_k.max(axis=1), 0)
        return top + np.log(np.exp(log_k - top[:, None]).sum(axis=1))


@settings(max_examples=150)
@given(
    st.integers(1, 12),
    st.integers(2, 200),
    st.sampled_from(["vector", "matrix"]),
    st.sampled_from(["gaussian", "exponential", "biweight", "tophat"]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from(METHODS),
    st.sampled_from([0.0, 1e3, 1e6]),
    st.floats(0, 4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_bounds_are_those_of_the_numbers_given(
    d, n, kind, kernel, dtype, method, offset, log_condition, leave_one_out, seed
):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-3, 3, d)
    X = ((rng.standard_normal((n, d)) + offset) * scales).astype(dtype)
    query = None if leave_one_out else (X[:40] + dtype(0.3) * scales.astype(dtype))
    if kind == "vector":
        bandwidth = scales * rng.uniform(0.5, 2, d)
    else:
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        R = (Q * 10.0 ** rng.uniform(-log_condition, 0, d)) @ Q.T
        bandwidth = (R + R.T) / 2 * np.outer(scales, scales)
        bandwidth = (bandwidth + bandwidth.T) / 2
    _, lower, upper = kernel_sums(
        X, query, kernel=kernel, bandwidth=bandwidth, method=method, return_bounds=True
    )
    exact = _mapped_truth(X, query, bandwidth, kernel)
    # The reference loses digits with the condition of the matrix.
    own = 1e-17 * 10.0**log_condition * (1 + np.abs(np.where(np.isfinite(exact), exact, 0)))
    assert np.all((lower <= exact + own) & (exact - own <= upper))


@pytest.mark.parametrize("redundant", [1, 4])
def test_numerically_singular_bandwidths_are_refused(redundant):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 18))
    X[:, -redundant:] = X[:, :redundant] * 2
    for bandwidth in (np.cov(X.T), np.cov(X.T) + 1e-15 * np.eye(18)):
        with pytest.raises(ValueError, match="bandwidth is a matrix, but not positive definite"):
            kernel_sums(X, bandwidth=bandwidth)
    scales = 10.0 ** np.linspace(-6, 6, 18)  # features of any unit are no redundant ones
    kernel_sums(X * scales, bandwidth=np.diag(scales**2))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 3])
def test_centres_are_within_their_offsets(dtype, d):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3000, d)) + 7).astype(dtype)
    weights = 10.0 ** rng.uniform(-6, 0, 3000)
    ref = KernelSums(X, weights, leaf_size=16).reference
    tree, nodes = ref.tree, ref.nodes
    for node in range(0, len(tree.starts), 5):
        part = slice(tree.starts[node], tree.stops[node])
        w, rows = ref.point_weights[part].astype(WIDE), tree.rows[part].astype(WIDE)
        center = (w[:, None] * rows).sum(axis=0) / w.sum()
        assert np.linalg.norm((nodes.centers[node] - center).astype(float)) <= nodes.offsets[node]


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
@pytest.mark.parametrize("out", [-300.0, -1000.0, -30000.0])
@pytest.mark.parametrize("rtol", [2e-6, 1e-3, 0.1])
def test_a_light_point_far_away_does_not_move_a_centre_in_float32(kernel, out, rtol):
    f = np.float32
    near, beside = np.full((160, 1), 2.7e-5, f), np.full((160, 1), 2, f)
    near[0] = out
    beside += np.linspace(0, 0.01, 160).astype(f)[:, None]
    weights = np.r_[2e-12, np.ones(159), np.full(160, 1e-3)]
    check(Case(np.r_[near, beside], weights, beside[:20], kernel, 1.0, rtol, 0.0, "tree"))


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_upper_bounds_hold_where_squared_distances_overflow(kernel):
    for X, query, h in (
        ([[0.0], [1e153], [3e153]], [[5e152]], 1e-10),
        ([[0.0], [1e150]], [[3e150]], 2e-154),
        ([[0.0]], [[1.3408e154 / 8]], 2**-3 * 0.9999),
    ):
        _, lower, upper = kernel_sums(X, query, kernel=kernel, bandwidth=h, return_bounds=True)
        r = np.abs(np.array(X, WIDE)[:, 0] - WIDE(query[0][0])).min() / WIDE(h)
        exact = -(r**2) / 2 if kernel == "gaussian" else -r
        assert lower <= exact + np.log(WIDE(len(X)))
        assert exact <= upper


@pytest.mark.parametrize("bandwidth", [5e-19, 3e-19, 2e-19])
def test_bounds_hold_where_carries_of_float32_distances_overflow(bandwidth):
    X = np.random.default_rng(0).standard_normal((300, 20)).astype(np.float32)
    got = kernel_sums(X, bandwidth=bandwidth, method="exact", return_bounds=True)
    exact = kernel_sums(X.astype(np.float64), bandwidth=float(np.float32(bandwidth)))
    estimate, lower, upper = (part.astype(np.float64) for part in got)
    assert np.all((lower <= exact) & (exact <= upper))
    there = np.abs(exact) < 0.99 * np.finfo(np.float32).max / 2  # s = 2 |log k| does not overflow
    np.testing.assert_allclose(estimate[there], exact[there], rtol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("spread", [1e27, 1e130, 1e200])
def test_bounds_hold_where_powers_of_distances_overflow(d, spread):
    """Cells of queries are moved by so many bandwidths, in powers of up to 12."""
    X = np.random.default_rng(0).uniform(-1, 1, (400, d)) * spread * 1e-50
    exact = truth(Case(X, None, None, "gaussian", 1e-50, 0, 0, ""))
    for rtol in (0.0, 1e-3):
        got, lower, upper = kernel_sums(
            X, bandwidth=1e-50, rtol=rtol, method="tree", return_bounds=True
        )
        assert np.all((lower <= got) & (got <= upper))
        assert np.all((lower <= exact) & (exact <= upper))


@pytest.mark.parametrize("d", [1, 3])
def test_a_constant_is_added_to_queries_of_any_spread(d):
    X = np.random.default_rng(0).uniform(-0.1, 0.1, (400, d))
    query = np.full((400, d), 8.0)
    query[:, 0] = np.geomspace(8, 1e40, 400)
    check(Case(X, None, query, "gaussian", 1.0, 0.0, 1e-3, "tree"))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_largest_terms_are_accurate_in_many_dimensions(n, kernel):
    """Squares that are all equal are rounded the same way, all in one direction."""
    for gap in (1292236.6665837027, 1684679.7152108464, *np.linspace(1e6, 2e6, 20)):
        check(Case(np.full((n, 3000), gap), None, np.zeros((1, 3000)), kernel, 1.0, 0, 0, "exact"))
