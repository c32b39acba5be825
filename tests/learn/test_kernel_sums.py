"""Certified sums of kernels: no input breaks a bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import factorial

from fastmetric import kernel_sums
from fastmetric.core.far_field.expansions import (
    HIGHEST,
    log_remainder,
    make_series,
    moments_to_local,
)
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.query_groups import GROUP, Rule
from fastmetric.learn.kernel_sums.certified_walks import WalkSums, walk_sums
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.kernel_table import NAMES as KERNELS
from tests.twins import density as naive

COMPACT = [kernel for kernel in KERNELS if kernel not in ("gaussian", "exponential")]


class Case(NamedTuple):
    """Weighted points, queries (None: leave one out), and how to sum."""

    X: np.ndarray
    weights: np.ndarray | None
    query: np.ndarray | None
    kernel: str
    h: float
    rtol: float
    atol: float
    method: str


@st.composite
def cases(draw, max_n=400, max_d=12):
    """Draw what may break a bound: see the branches."""
    n, d = draw(st.integers(1, max_n)), draw(st.integers(1, max_d))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, d))
    shape = draw(st.sampled_from(["normal", "lattice", "clusters", "line", "one point"]))
    if shape == "lattice":
        X = np.round(2 * X) / 2
    elif shape == "clusters":
        X += 1e6 * rng.integers(0, 3, (n, 1))
    elif shape == "line":
        X = X[:, :1] * np.ones(d)
    elif shape == "one point":
        X[:] = X[0]
    scale = 10.0 ** draw(st.integers(-8, 8))
    h = 10.0 ** draw(st.floats(-2, 1.5))
    where = draw(st.sampled_from(["leave one out", "the points", "near", "far"]))
    query = {
        "leave one out": None,
        "the points": X,
        "near": X[: max(1, n // 2)] + h * rng.standard_normal((max(1, n // 2), d)),
        "far": X[:7] + 10.0 ** draw(st.floats(0, 3)) * h,
    }[where]
    kind = draw(st.sampled_from(["none", "some zero", "wide", "huge"]))
    weights = {
        "none": None,
        "some zero": rng.integers(0, 3, n).astype(float),
        "wide": 10.0 ** rng.uniform(-140, 140, n),
        "huge": rng.random(n) * 1e300 / n,
    }[kind]
    if weights is not None and weights.max() == 0:
        weights[0] = 1.0
    return Case(
        scale * X,
        weights,
        None if query is None else scale * query,
        draw(st.sampled_from(KERNELS)),
        scale * h,
        draw(st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.5])),
        draw(st.sampled_from([0.0, 0.0, 1e-3, 10.0])) * (1e300 / n if kind == "huge" else 1.0),
        draw(st.sampled_from(["tree", "tree", "exact"])),
    )


def truth(case, stretch=0.0):
    """Return the log sums (m,) in wide arithmetic, at distances (1 + stretch) as large."""
    points = case.X if case.query is None else case.query
    s = naive.sq_distances(points, case.X) / naive.WIDE(case.h) ** 2 * (1 + naive.WIDE(stretch))
    r = np.sqrt(s)
    with np.errstate(divide="ignore"):
        log_k = {"gaussian": -s / 2, "exponential": -r}.get(
            case.kernel, np.log(naive.density_kernel(case.kernel, r))
        )
        if case.query is None:
            np.fill_diagonal(log_k, -np.inf)
        if case.weights is not None:
            log_k = log_k + np.log(case.weights.astype(naive.WIDE))
        top = np.where(np.isfinite(log_k.max(axis=1)), log_k.max(axis=1), 0)
        return top + np.log(np.exp(log_k - top[:, None]).sum(axis=1))


def log_add(a, b):
    """Return log(exp(a) + exp(b)), for b = -inf too."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(b), a, np.logaddexp(a, b))


def log_sub(a, b):
    """Return log(max(0, exp(a) - exp(b)))."""
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.where(a > b, a + np.log1p(-np.exp(np.minimum(b - a, 0))), -np.inf)
    return np.where(np.isneginf(b), a, gap)


def check(case):
    """Assert the promise and the certificate."""
    d, eps = case.X.shape[1], np.finfo(case.X.dtype).eps
    sums = KernelSums(
        case.X, case.weights, kernel=case.kernel, bandwidth=case.h, leaf_size=16, n_jobs=1
    )
    got = sums.log_sums(case.query, rtol=case.rtol, atol=case.atol, method=case.method)
    exact = truth(case)
    assert np.all(got.lower <= exact)
    assert np.all(exact <= got.upper)
    # A compact kernel loses more than the promise allows where a point is near its rim.
    slack = 6.5 * eps if case.kernel in COMPACT else 0.0
    least, most = (truth(case, slack), truth(case, -slack)) if slack else (exact, exact)
    # Logs are of sums in units of the largest weight; and the exponents that make up a sum are on
    # average as large as its log in units of the total weight, at most.
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    units = np.log([1.0, weights.max(), weights.sum()])

    def rounding(logs):
        size = np.abs(np.where(np.isfinite(logs), logs, 0) - units[:, None]).max(axis=0)
        return 8 * eps * (d + np.where(np.isfinite(logs), size, 0))

    with np.errstate(invalid="ignore", divide="ignore"):
        log_atol = np.log(naive.WIDE(case.atol))
        lowest = log_sub(least + np.log1p(-naive.WIDE(case.rtol)), log_atol)
        highest = log_add(most + np.log1p(naive.WIDE(case.rtol)), log_atol)
        assert np.all(got.estimate >= lowest - rounding(least))
        assert np.all(got.estimate <= highest + rounding(most))


@settings(max_examples=400)
@given(cases())
def test_tolerance_and_bounds_hold_for_any_input(case):
    check(case)


@pytest.mark.long
@settings(max_examples=100_000)
@given(cases())
def test_tolerance_and_bounds_hold_in_many_trials(case):
    check(case)


def test_check_can_fail(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    case = Case(X, None, None, "gaussian", 0.5, 0.0, 0.0, "tree")
    check(case)
    original = KernelSums.log_sums

    def too_coarse(self, query, *, rtol, atol, method):
        return original(self, query, rtol=0.3, atol=atol, method=method)

    monkeypatch.setattr(KernelSums, "log_sums", too_coarse)
    with pytest.raises(AssertionError):
        check(case)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 12])
def test_large_sets_are_approximated_within_the_tolerance(kernel, d):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((2000, d)) * np.linspace(1, 3, d)
    query = X[::9] + 0.1
    h = 1.5 if d > 3 else 0.5
    exact = truth(Case(X, None, query, kernel, h, 0, 0, ""))
    for rtol in (0.0, 1e-4, 1e-2, 0.3):
        got, lower, upper = kernel_sums(
            X, query, kernel=kernel, bandwidth=h, rtol=rtol, method="tree", return_bounds=True
        )
        assert np.all((lower <= exact) & (exact <= upper))
        there = np.isfinite(exact)
        assert np.all(there == np.isfinite(got))
        # Rounding of a few thousand terms, and of a compact kernel's rim.
        assert np.all(np.abs(got - exact)[there] <= -np.log1p(-rtol) + 1e-9)


def test_error_budget_counts_a_nodes_contribution_once():
    """Under a wide kernel the root is accepted at once, and all that is certain is its own."""
    X = np.array([[0.0], [-0.5], [-0.5], [-2.5], [2.0], [1.0]])
    for h in np.geomspace(4, 60, 40):
        for rtol in (1e-3, 0.05):
            exact = kernel_sums(X, X, kernel="biweight", bandwidth=h, method="exact")
            got = kernel_sums(X, X, kernel="biweight", bandwidth=h, rtol=rtol, method="tree")
            assert np.all(np.abs(np.expm1(got - exact)) <= rtol)


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
@pytest.mark.parametrize("gap", [2.5, 3.9])  # 2 is the tolerance, 4 is twice as much
def test_error_budget_spends_each_lower_bound_once(kernel, gap):
    # One point is nearer: as a constant, the node is off by half the gap, nearly all of it.
    rtol, h = 1e-3, 1.0
    X = np.full((2000, 1), 1 + gap * rtol)
    X[0] = 1.0
    check(Case(X, None, np.zeros((1, 1)), kernel, h, rtol, 0.0, "tree"))


def test_a_node_is_never_narrower_than_its_children():
    """Else a node could have a series made of a child's that was left out as too wide."""
    rng = np.random.default_rng(0)
    sums = KernelSums(
        rng.standard_normal((2000, 2)), 10.0 ** rng.uniform(-6, 6, 2000), leaf_size=16
    )
    tree, radii = sums.reference.tree, sums.reference.nodes.radii
    inner = np.flatnonzero(tree.children >= 0)
    for child in (tree.children[inner], tree.children[inner] + 1):
        assert np.all(radii[child] <= radii[inner] * (1 + 1e-15))


def test_loose_tolerance_is_used():
    X = np.random.default_rng(0).standard_normal((5000, 2))
    in_float32 = kernel_sums(X, bandwidth=0.3, rtol=0.1, method="tree")
    exact = kernel_sums(X, bandwidth=0.3, method="exact")
    assert np.abs(in_float32 - exact).max() > 1e-4


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
def test_same_bits_for_every_number_of_threads(kernel, dtype):
    X = np.random.default_rng(1).standard_normal((3000, 3)).astype(dtype)
    first = kernel_sums(X, kernel=kernel, bandwidth=0.4, rtol=1e-3, method="tree", n_jobs=1)
    for n_jobs in (2, 5):
        again = kernel_sums(
            X, kernel=kernel, bandwidth=0.4, rtol=1e-3, method="tree", n_jobs=n_jobs
        )
        assert np.array_equal(first, again)


@pytest.mark.parametrize("h", [0.2, 0.05])
def test_tails_equal_a_plain_logsumexp(h):
    X = np.random.default_rng(0).standard_normal((1200, 10))
    exact = truth(Case(X, None, None, "gaussian", h, 0, 0, ""))
    for method in ("tree", "exact"):
        got = kernel_sums(X, bandwidth=h, method=method)
        assert np.all(np.abs(got - exact) <= 1e-9 * np.abs(exact))


def test_log_sums_far_below_the_smallest_float():
    X = np.random.default_rng(0).standard_normal((500, 3))
    query = X[:20] + 1414.0  # half the squared distance is about three million
    exact = truth(Case(X, None, query, "gaussian", 1.0, 0, 0, ""))
    assert exact.max() < -1e6
    got = kernel_sums(X, query, rtol=1e-3, method="tree")
    assert np.all(np.abs(got - exact) <= -np.log1p(-1e-3) + 1e-15 * np.abs(exact) * 8)


@pytest.mark.parametrize("d", [12, 200, 400])
@pytest.mark.parametrize("gap", [0.1, 3.3, 33.3])
def test_bounds_hold_where_all_squares_are_rounded_alike(d, gap):
    X, query = np.zeros((20, d)), np.full((1, d), gap)
    _, lower, upper = kernel_sums(X, query, return_bounds=True)
    exact = truth(Case(X, None, query, "gaussian", 1.0, 0, 0, ""))
    assert lower <= exact <= upper


def test_negative_sum_counts_as_zero():
    """Within atol a series may be."""
    none = np.empty(0, np.intp)
    found = WalkSums(np.array([-1e-5]), np.array([1e-4]), np.zeros(1), [], none)
    estimate, lower, upper = found.logs()
    assert estimate == lower == -np.inf
    assert np.isclose(upper, np.log(9e-5))


def test_float32_sums_keep_the_tolerance_of_float32():
    X = np.random.default_rng(0).standard_normal((2000, 3)).astype(np.float32)
    eps = np.finfo(np.float32).eps
    for query in (None, X[:300] + np.float32(30)):
        case = Case(X, None, query, "gaussian", 0.5, 0, 0, "")
        exact = truth(case)
        for method in ("tree", "exact"):
            got, lower, upper = kernel_sums(
                X, query, bandwidth=0.5, rtol=1e-3, method=method, return_bounds=True
            )
            assert got.dtype == np.float32
            assert np.all((lower <= exact) & (exact <= upper))
            assert np.all(np.abs(got - exact) <= -np.log1p(-1e-3) + 8 * eps * (3 + np.abs(exact)))


@pytest.mark.parametrize("d", sorted(HIGHEST))
def test_remainder_bounds_the_truncation_error(d):
    """The table against the derivatives themselves, on a grid finer than its own."""
    series = make_series(d)
    r = np.linspace(0, 25, 4001)
    for n in range(2, series.degree + 2):
        hermite = np.polynomial.hermite_e.HermiteE.basis(n)(r)
        largest = np.maximum.accumulate(np.abs(hermite))
        with np.errstate(divide="ignore"):
            log_values = np.log(largest) - r * r / 2
        supremum = np.maximum.accumulate(log_values[::-1])[::-1]
        bound = np.array([log_remainder(series, n, x) for x in r])
        assert np.all(supremum <= bound + 1e-12)
        near = r < 19  # beyond, the table ends in a plain power
        assert np.all(bound[near] <= supremum[near] + 0.02 + r[near] / 16 + 1 / 512)


@settings(max_examples=60)
@given(st.integers(1, 4), st.floats(0.01, 1.5), st.integers(0, 2**32 - 1))
def test_far_field_expansion_is_within_its_remainder(d, radius, seed):
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(d)
    u = radius * direction / np.linalg.norm(direction)
    v = rng.standard_normal(d) * rng.choice([0.5, 2.0, 4.0])
    series = make_series(d)
    exact = np.exp(-((v - u) ** 2).sum() / 2)
    along = np.linspace(0, 1, 200)[:, None] * u
    nearest = np.sqrt(((v - along) ** 2).sum(axis=1).min())
    hermite = [np.polynomial.hermite_e.HermiteE.basis(k) for k in range(series.degree + 1)]
    for degree in range(1, series.degree + 1):
        total = 0.0
        for a in series.indices[series.indices.sum(axis=1) <= degree]:
            term = 1.0
            for k in range(d):
                term *= u[k] ** a[k] / np.prod(np.arange(1, a[k] + 1)) * hermite[a[k]](v[k])
            total += term
        error = abs(total * np.exp(-(v**2).sum() / 2) - exact)
        bound = (
            radius ** (degree + 1)
            / factorial(degree + 1)
            * np.exp(log_remainder(series, degree + 1, max(0.0, nearest - radius / 100)))
        )
        assert error <= bound + 1e-14


def _monomials(series, t):
    """Return t^a / a! at points t (.., d), for all a (.., C)."""
    return (t[..., None, :] ** series.indices / factorial(series.indices)).prod(axis=-1)


@settings(max_examples=60)
@given(st.integers(1, 4), st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
def test_local_expansion_is_within_its_remainder(d, radius, width, seed):
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((5, d))
    u *= radius / np.linalg.norm(u, axis=1, keepdims=True)
    t = rng.standard_normal(d)
    t *= width / np.linalg.norm(t)
    v = rng.standard_normal(d) * rng.choice([0.5, 2.0, 4.0])
    weights, series = rng.random(5), make_series(d)
    moments = weights @ _monomials(series, u)
    exact = weights @ np.exp(-((v + t - u) ** 2).sum(axis=1) / 2)
    nearest = max(0.0, np.linalg.norm(v) - radius - width)
    for degree in range(1, series.degree + 1):
        local = moments_to_local(series, degree, moments, v)
        bound = (
            weights.sum()
            * (radius + width) ** (degree + 1)
            / np.prod(np.arange(1.0, degree + 2))
            * np.exp(log_remainder(series, degree + 1, nearest))
        )
        assert abs(_monomials(series, t) @ local - exact) <= bound + 1e-14


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_moments_to_local_backwards_is_its_transpose(d, seed):
    rng, series = np.random.default_rng(seed), make_series(d)
    here, there = rng.standard_normal((2, len(series.indices)))
    v, degree = rng.standard_normal(d), int(rng.integers(1, series.degree + 1))
    moved = moments_to_local(series, degree, here, v)
    back = moments_to_local(series, degree, there, -v)
    scale = np.abs(here).max() * np.abs(there).max() * np.abs(moved).max()
    assert abs(there @ moved - here @ back) <= 1e-11 * max(1.0, scale) * len(here)


def test_wide_kernels_are_summed_by_query_cells():
    """Nearly all of it: the groups themselves have only what is near them left."""
    X = np.random.default_rng(0).standard_normal((100_000, 2))
    sums = KernelSums(X, bandwidth=1.0)
    _, queries = sums.grouped(X, np.arange(len(X)))
    rule = Rule(GAUSSIAN, 0.5, 1e-2, 0.0)
    [found] = walk_sums([(queries, Walk(sums.reference, rule, np.array([0]), keep=True))])
    own = sum(
        np.count_nonzero(np.repeat(part.lengths() <= GROUP, part.lists.counts))
        for part in found.interactions
    )
    assert own <= 30 * len(queries.starts)


@pytest.mark.parametrize("h", [0.11730068959502454, 1.0])
@pytest.mark.parametrize("method", ["exact", "tree"])
@pytest.mark.parametrize("away", [1e12, 1e18, 1e30, 1e60])
def test_bounds_hold_for_exponents_too_coarse_for_exp(h, method, away):
    X = np.random.default_rng(0).standard_normal((300, 8))
    check(Case(X, None, X[:50] + away, "gaussian", h, 0.01, 0.0, method))


@pytest.mark.parametrize("method", ["exact", "tree"])
def test_bounds_hold_with_hundreds_of_features(method):
    X = np.random.default_rng(0).standard_normal((1100, 600))
    check(Case(X, None, X[:20], "gaussian", 20.0, 0.01, 0.0, method))
