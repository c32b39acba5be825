from __future__ import annotations

import math
import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import cumulative_trapezoid, quad
from scipy.special import gamma
from scipy.stats import kstest, multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity as Peer
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric.kernel_density import KernelDensity, _narrowed, kernel_sums
from tests.twins import density as naive

EPS = np.finfo(np.float64).eps
TAILED = ("gaussian", "exponential")
BOUNDED = ("biweight", "tophat", "epanechnikov", "linear", "cosine")
KERNELS = TAILED + BOUNDED
REACH = {"gaussian": 40.0, "exponential": 300.0}  # beyond it k(r) r^50 is below 1e-40 of its peak


@parametrize_with_checks(
    [KernelDensity(), KernelDensity(kernel="biweight", bandwidth="silverman", n_jobs=1)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((80, 3))


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).standard_normal((50, 3))


def rounding(X):
    """Return a bound of the rounding of a sum of kernels, as a share of its number of terms.

    A squared distance is right to (d + 2) eps of itself, and no kernel changes by more than
    1.6 |dr| <= 1.6 |ds| / 2s * sqrt(s); 8 leaves room for exp, cos and the sum of few terms.
    """
    return 8 * (X.shape[1] + 2) * EPS


def assert_sums(log_sums, expected, X):
    """Assert that the log sums (m,) are those of the `expected` sums, to rounding."""
    expected = np.asarray(expected)
    tolerance = len(X) * rounding(X)
    np.testing.assert_allclose(np.exp(log_sums), expected.astype(float), rtol=0, atol=tolerance)
    # In the tails, where sums are small, the log itself is right to a share of its size.
    large = expected > 1e-3
    logs = np.log(expected[large]).astype(float)
    np.testing.assert_allclose(log_sums[large], logs, rtol=0, atol=2e3 * tolerance)


def test_assert_sums_can_fail(rows):
    with pytest.raises(AssertionError):
        assert_sums(np.array([0.0, 1e-9]), [1.0, 1.0], rows)


# The function


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_match_the_naive_twin(kernel, weighted, rows, queries):
    weights = np.random.default_rng(2).random(len(rows)) if weighted else None
    options = dict(kernel=kernel, weights=weights)
    for query in (queries, None):
        ours = kernel_sums(rows, query, bandwidth=0.8, **options)
        assert_sums(ours, naive.density_sums(rows, query, h=0.8, **options), rows)


@settings(max_examples=40)
@given(
    n=st.integers(1, 30),
    d=st.integers(1, 5),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
    rounded=st.booleans(),
    kernel=st.sampled_from(KERNELS),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_enclose_the_twin_and_scales_do_not_matter(n, d, scale, rounded, kernel, seed):
    rng = np.random.default_rng(seed)
    X, query = rng.standard_normal((n, d)), 2 * rng.standard_normal((7, d))
    if rounded and kernel != "tophat":  # ties at the edge of the tophat are rounding's to decide
        X, query = X.round(), query.round()
    for q in (query, None):
        logs, lower, upper = kernel_sums(
            scale * X,
            None if q is None else scale * q,
            kernel=kernel,
            bandwidth=1.1 * scale,
            return_bounds=True,
        )
        assert np.all(lower <= logs)
        assert np.all(logs <= upper)
        assert_sums(logs, naive.density_sums(X, q, kernel=kernel, h=1.1), X)


def test_empty_sums_are_minus_infinity():
    assert kernel_sums([[0.0, 1.0]])[0] == -np.inf  # one point, left out
    assert kernel_sums([[0.0]], [[5.0]], kernel="linear")[0] == -np.inf


def test_log_densities_in_the_far_tail_stay_finite():
    logs = kernel_sums([[0.0], [1.0]], [[2001.0]], bandwidth=1.0)
    assert logs[0] == pytest.approx(-(2000.0**2) / 2, rel=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
def test_vector_bandwidth_scales_each_feature(kernel, rows, queries):
    h = np.array([0.5, 1.0, 2.0])
    ours = kernel_sums(rows, queries, kernel=kernel, bandwidth=h)
    assert_sums(ours, naive.density_sums(rows / h, queries / h, kernel=kernel), rows)


@pytest.mark.parametrize("kernel", KERNELS)
def test_matrix_bandwidth_is_a_covariance(kernel, rows, queries):
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.7, 0.0], [-0.3, 0.2, 0.4]])
    inverse = np.linalg.inv(root).T
    options = dict(kernel=kernel, bandwidth=root @ root.T)
    for query in (queries, None):
        expected = naive.density_sums(
            rows @ inverse, None if query is None else query @ inverse, kernel=kernel
        )
        # A condition number below 20 multiplies the rounding of the map.
        assert_sums(kernel_sums(rows, query, **options), expected, np.tile(rows, (20, 1)))


def test_matrix_bandwidth_far_from_the_origin_is_accurate(rows, queries):
    covariance = np.diag([1.0, 4.0, 9.0]) + 0.5
    near = kernel_sums(rows, queries, bandwidth=covariance)
    far = kernel_sums(rows + 1e6, queries + 1e6, bandwidth=covariance)
    # rows + 1e6 are rounded to 1e6 eps; distances of up to 10 turn that into 10 times as much.
    np.testing.assert_allclose(far, near, rtol=0, atol=100 * 1e6 * EPS)


def test_zero_weight_drops_a_row_and_weight_k_repeats_it(rows, queries):
    weights = np.arange(len(rows)) % 3
    copies = np.repeat(rows, weights, axis=0)
    assert_sums(
        kernel_sums(rows, queries, weights=weights),
        naive.density_sums(copies, queries),
        copies,
    )


@pytest.mark.parametrize("query_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bandwidth", [0.8, [0.8] * 3, 0.64 * np.eye(3)])
def test_float32_points_give_float32_sums_in_their_bounds(rows, queries, query_dtype, bandwidth):
    X, query = rows.astype(np.float32), queries.astype(query_dtype)
    answers = kernel_sums(X, query, bandwidth=bandwidth, return_bounds=True)
    assert {answer.dtype for answer in answers} == {np.dtype(np.float32)}
    logs, lower, upper = answers
    assert np.all((lower <= logs) & (logs <= upper))
    exact = np.log(naive.density_sums(X, query.astype(np.float32), h=0.8)).astype(float)
    # s is right to (d + 4) eps of itself, and s / 2 is at most -log of the sum.
    eps = np.finfo(np.float32).eps
    assert np.all(np.abs(logs - exact) <= 2 * 7 * eps * (1 + np.abs(exact).max()))


def test_float64_points_give_float64_sums(rows, queries):
    assert kernel_sums(rows, queries.astype(np.float32)).dtype == np.float64
    assert kernel_sums([[1, 2], [3, 4]]).dtype == np.float64


def test_bounds_in_float32_are_rounded_outwards():
    logs = np.array([math.log(3), -math.log(3), 0.5, -1e300, -np.inf])
    lower, upper = (_narrowed(logs, towards, np.dtype(np.float32)) for towards in (-np.inf, np.inf))
    assert lower.dtype == upper.dtype == np.float32
    assert np.all(lower.astype(float) <= logs)
    assert np.all(logs <= upper.astype(float))
    assert np.array_equal(lower == upper, [False, False, True, False, True])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(rtol=1.0), "rtol"),
        (dict(rtol=-0.1), "rtol"),
        (dict(atol=-1.0), "atol"),
        (dict(atol=np.nan), "atol"),
        (dict(kernel="cauchy"), "kernel='cauchy'"),
        (dict(method="fast"), "method"),
        (dict(n_jobs=0), "n_jobs"),
        (dict(query=np.zeros((2, 4))), "4 features"),
        (dict(query=[["a", "b", "c"]]), "strings"),
        (dict(query=np.full((1, 3), np.nan)), "query contains NaN"),
        (dict(bandwidth=0.0), "bandwidth"),
        (dict(bandwidth=np.inf), "bandwidth"),
        (dict(bandwidth=True), "bandwidth"),
        (dict(bandwidth="scott"), "bandwidth"),
        (dict(bandwidth=1e-200), "square"),
        (dict(bandwidth=1e200), "square"),
        (dict(bandwidth=[1.0, 1.0]), r"shape \(2,\)"),
        (dict(bandwidth=[1.0, 0.0, 1.0]), "positive"),
        (dict(bandwidth=[1e-320, 1.0, 1.0]), "too small"),
        (dict(bandwidth=[1.0, np.nan, 1.0]), "NaN"),
        (dict(bandwidth=np.ones((3, 3))), "positive definite"),
        (dict(bandwidth=np.eye(3) + np.eye(3, k=1)), "symmetric"),
        (dict(weights=np.ones(3)), "one number per row"),
        (dict(weights=np.zeros(80)), "all zero"),
        (dict(weights=np.linspace(-1, 1, 80)), "negative"),
        (dict(weights=np.full(80, np.inf)), "infinity"),
        (dict(weights=np.full(80, 1e307)), "finite sum"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message, rows):
    with pytest.raises(ValueError, match=message):
        kernel_sums(rows, **change)


def test_a_query_beyond_float32_is_refused():
    with pytest.raises(ValueError, match="out of the range of float32"):
        kernel_sums(np.zeros((2, 1), np.float32), [[1e300]])


# The estimator: densities


@pytest.mark.parametrize("bandwidth", [0.9, "scott", "silverman"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "biweight"])
def test_kernel_density_matches_scikit_learn(kernel, weighted, bandwidth, rows, queries):
    weights = np.random.default_rng(2).random(len(rows)) if weighted else None
    ours = KernelDensity(kernel=kernel, bandwidth=bandwidth).fit(rows, sample_weight=weights)
    peer = Peer(kernel=kernel, bandwidth=bandwidth).fit(rows, sample_weight=weights)
    assert ours.bandwidth_ == pytest.approx(peer.bandwidth_, rel=2 * EPS)
    theirs = peer.score_samples(queries)
    # Where a bounded kernel barely reaches, scikit-learn leaves rounding of its own.
    moderate = theirs > -12
    assert moderate.sum() >= 10
    np.testing.assert_allclose(ours.score_samples(queries)[moderate], theirs[moderate], rtol=1e-9)
    assert ours.score(queries[moderate]) == pytest.approx(peer.score(queries[moderate]), rel=1e-9)


def radial_volume(kernel, d):
    """Return the integral of the kernel over R^d by quadrature of its radial integral."""
    sphere = 2 * math.pi ** (d / 2) / gamma(d / 2)
    top = REACH.get(kernel, 1.0)
    # Breaks where the integrand peaks: r = sqrt(d - 1), d - 1, or near the edge.
    breaks = sorted({min(max(d - 1, 1) ** power, 0.9 * top) for power in (0.5, 1)})
    ends = [0.0, *breaks, top]
    parts = [
        quad(
            lambda r: float(naive.density_kernel(kernel, r)) * r ** (d - 1),
            low,
            high,
            epsabs=0,
            epsrel=1e-11,
            limit=200,
        )[0]
        for low, high in pairwise(ends)
    ]
    return sphere * sum(parts)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 10, 25, 50])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_volume_is_the_radial_integral(kernel, d):
    X = np.zeros((1, d))
    log_peak = KernelDensity(kernel=kernel).fit(X).score_samples(X)[0]
    assert log_peak == pytest.approx(-math.log(radial_volume(kernel, d)), abs=1e-9)


@pytest.mark.parametrize(
    "bandwidth", [0.7, [0.7, 0.2], [[0.7, 0.2], [0.2, 0.1]]], ids=["number", "vector", "matrix"]
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_density_integrates_to_one_in_the_plane(kernel, bandwidth):
    centre = np.array([3.0, -1.0])
    density = KernelDensity(kernel=kernel, bandwidth=bandwidth).fit(centre[None])
    matrix = np.asarray(bandwidth)
    root = np.linalg.cholesky(matrix) if matrix.ndim == 2 else np.diag(matrix * np.ones(2))
    # Polar coordinates of the ellipse, in which the kernels are smooth up to their edge.
    top = {"gaussian": 12.0, "exponential": 60.0}.get(kernel, 1.0)
    nodes, node_weights = np.polynomial.legendre.leggauss(60)
    r, angles = top * (nodes + 1) / 2, 2 * np.pi * np.arange(6) / 6
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = centre + (r[:, None, None] * circle) @ root.T
    values = np.exp(density.score_samples(points.reshape(-1, 2))).reshape(60, 6)
    area = (values.mean(axis=1) * 2 * np.pi * r * node_weights).sum() * top / 2
    assert area * np.linalg.det(root) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("bandwidth", [0.7, [0.7], [[0.49]]], ids=["number", "vector", "matrix"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_density_integrates_to_one_on_the_line(kernel, bandwidth):
    X = np.array([[0.0], [0.5], [4.0]])
    density = KernelDensity(kernel=kernel, bandwidth=bandwidth).fit(X, sample_weight=[1, 2, 3])
    top = {"gaussian": 10.0, "exponential": 45.0}.get(kernel, 1.0) * 0.7
    # Panels between all kinks, in each of which the density is smooth.
    ends = np.unique(np.concatenate([X - top, X, X + top, X - 0.7, X + 0.7]))
    ends = np.unique(np.concatenate([ends, np.linspace(ends[0], ends[-1], 30)]))
    nodes, node_weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(ends)[:, None] / 2
    points = ends[:-1, None] + half * (nodes + 1)
    values = np.exp(density.score_samples(points.reshape(-1, 1))).reshape(points.shape)
    assert (values * half * node_weights).sum() == pytest.approx(1, abs=1e-9)


def test_matrix_bandwidth_gives_the_normal_density(rows):
    covariance = np.array([[1.0, 0.3], [0.3, 0.5]])
    density = KernelDensity(bandwidth=covariance).fit([[1.0, 2.0]])
    peer = multivariate_normal([1.0, 2.0], covariance)
    np.testing.assert_allclose(
        density.score_samples(rows[:, :2]), peer.logpdf(rows[:, :2]), rtol=1e-13
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_scalar_vector_and_matrix_bandwidth_agree(kernel, rows, queries):
    forms = [1.2, [1.2] * 3, 1.44 * np.eye(3)]
    scores = [
        KernelDensity(kernel=kernel, bandwidth=h).fit(rows).score_samples(queries) for h in forms
    ]
    for other in scores[1:]:
        assert_sums(other, np.exp(scores[0]), rows)


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_equal_repeated_rows(kernel, rows, queries):
    weights = 1 + np.arange(len(rows)) % 3
    weighted = KernelDensity(kernel=kernel).fit(rows, sample_weight=weights)
    repeated = KernelDensity(kernel=kernel).fit(np.repeat(rows, weights, axis=0))
    same_shares = KernelDensity(kernel=kernel).fit(rows, sample_weight=1e-9 * weights)
    expected = np.exp(repeated.score_samples(queries))
    assert_sums(weighted.score_samples(queries), expected, rows)
    assert_sums(same_shares.score_samples(queries), expected, rows)


def test_score_samples_includes_the_query_itself(rows):
    density = KernelDensity(kernel="tophat", bandwidth=1e-3).fit(rows)
    expected = -math.log(len(rows) * 4 / 3 * math.pi * 1e-9)
    np.testing.assert_allclose(density.score_samples(rows), expected, rtol=1e-14)


def test_far_queries_have_finite_log_densities():
    far = KernelDensity(bandwidth=0.01).fit([[0.0], [1.0]]).score_samples([[16.0]])
    expected = -((15.0 / 0.01) ** 2) / 2 - math.log(2 * 0.01 * math.sqrt(2 * math.pi))
    assert far[0] == pytest.approx(expected, rel=1e-14)
    assert far[0] < -1e6


@pytest.mark.parametrize("d", [1, 100])
def test_atol_bounds_the_error_of_the_density(d):
    X, query = np.zeros((1, d)), np.ones((1, d))
    exact = KernelDensity(bandwidth=0.5).fit(X).score_samples(query)
    # In 100 dimensions the tolerance is one of sums far below float64, or above.
    for bandwidth in (0.5, 1e-3, 1e3):
        for atol in (0.0, 1e-12, 1e12):
            scores = KernelDensity(bandwidth=bandwidth, atol=atol).fit(X).score_samples(query)
            assert scores.shape == (1,)
            assert not np.isnan(scores).any()
    close = KernelDensity(bandwidth=0.5, atol=1e-12).fit(X).score_samples(query)
    assert abs(np.exp(close[0]) - np.exp(exact[0])) <= 1e-12 + 1e-13 * np.exp(exact[0])


def test_scores_follow_the_precision_of_the_queries(rows, queries):
    for fit_dtype in (np.float32, np.float64):
        density = KernelDensity(bandwidth=0.8).fit(rows.astype(fit_dtype))
        exact = KernelDensity(bandwidth=0.8).fit(rows).score_samples(queries)
        for dtype in (np.float32, np.float64):
            scores = density.score_samples(queries.astype(dtype))
            assert scores.dtype == dtype
            # Rows rounded to float32 move each exponent by about eps32 * |q||q - x| / h^2.
            tolerance = 100 * np.finfo(np.float32).eps if np.float32 in (fit_dtype, dtype) else 0
            np.testing.assert_allclose(scores, exact, rtol=0, atol=tolerance)


# The estimator: bandwidths


@pytest.mark.parametrize("kernel", ["gaussian", "exponential", "biweight", "cosine"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loo_bandwidth_maximises_the_likelihood(kernel, weighted, rows):
    weights = np.random.default_rng(2).integers(0, 3, len(rows)) if weighted else None
    counted = rows if weights is None else rows[weights > 0]
    positive = None if weights is None else weights[weights > 0].astype(float)
    density = KernelDensity(kernel=kernel, bandwidth="loo").fit(rows, sample_weight=weights)
    best = naive.density_loo(counted, density.bandwidth_, kernel=kernel, weights=positive)
    for factor in np.geomspace(1 / 30, 30, 61):
        h = factor * density.bandwidth_
        # log h is found to 1e-4; the curvature of the mean is of order d + 1.
        assert naive.density_loo(counted, h, kernel=kernel, weights=positive) <= best + 1e-7


@pytest.mark.parametrize("kernel", KERNELS)
def test_loo_bandwidth_scales_with_the_data(kernel, rows):
    one = KernelDensity(kernel=kernel, bandwidth="loo").fit(rows).bandwidth_
    for power in (-20, 20):  # powers of two: the same bits, scaled
        scaled = KernelDensity(kernel=kernel, bandwidth="loo").fit(rows * 2.0**power)
        assert scaled.bandwidth_ == pytest.approx(one * 2.0**power, rel=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_loo_bandwidth_reaches_a_neighbour_of_an_outlier(kernel, rows):
    X = np.concatenate([rows, [[1e3, 0.0, 0.0]]])
    h = KernelDensity(kernel=kernel, bandwidth="loo").fit(X).bandwidth_
    assert np.isfinite(naive.density_loo(X, h, kernel=kernel))


def test_loo_bandwidth_adapts_to_tight_clusters(rows):
    """Clusters of width 1e-4, 1 apart: far from the value that their range suggests."""
    X = 1e-4 * rows + np.arange(len(rows))[:, None] % 2
    assert 1e-5 < KernelDensity(bandwidth="loo").fit(X).bandwidth_ < 1e-4


def test_loo_stops_at_its_bound_where_every_row_has_a_duplicate(rows):
    X = np.repeat(rows, 2, axis=0)
    with pytest.warns(UserWarning, match="duplicates") as caught:
        density = KernelDensity(bandwidth="loo").fit(X)
    assert [w.filename for w in caught if w.category is UserWarning] == [__file__]
    assert density.bandwidth_ == pytest.approx(1e-6 * np.ptp(rows, axis=0).max(), rel=1e-12)
    assert np.isfinite(density.score_samples(X)).all()


@pytest.mark.parametrize("X", [[[1.0, 2.0]], [[1.0, 2.0]] * 5], ids=["one row", "equal rows"])
def test_loo_refuses_rows_without_a_scale(X):
    with pytest.raises(ValueError, match="two different rows"):
        KernelDensity(bandwidth="loo").fit(X)
    with pytest.raises(ValueError, match="two different rows"):
        KernelDensity(bandwidth="loo").fit([[0.0], [1.0]], sample_weight=[1, 0])


def test_bandwidth_is_kept_in_the_form_in_which_it_was_given(rows):
    given = np.array([1.0, 2.0, 3.0])
    density = KernelDensity(bandwidth=given).fit(rows)
    assert np.array_equal(density.bandwidth_, given)
    assert density.bandwidth_ is not given
    assert isinstance(KernelDensity(bandwidth=np.float32(0.5)).fit(rows).bandwidth_, float)
    assert KernelDensity(bandwidth=np.eye(3)).fit(rows).bandwidth_.shape == (3, 3)


# The estimator: draws

# Dvoretzky, Kiefer, Wolfowitz: P(sup |F_N - F| > e) <= 2 exp(-2 N e^2); Hoeffding for means in
# [-1, 1]: 2 exp(-N e^2 / 2). Each fails for one seed in 10^9.
DRAWS = 20_000
KS_BOUND = math.sqrt(math.log(2e9) / (2 * DRAWS))
MEAN_BOUND = math.sqrt(2 * math.log(2e9) / DRAWS)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_have_the_kernels_radii_and_uniform_directions(kernel, d):
    root = 0.3 * np.eye(d) + np.tril(np.full((d, d), 0.1))
    density = KernelDensity(kernel=kernel, bandwidth=root @ root.T).fit(np.full((1, d), 2.0))
    Z = np.linalg.solve(root, (density.sample(DRAWS, random_state=0) - 2.0).T).T
    radii = np.linalg.norm(Z, axis=1)
    r = np.linspace(0, REACH.get(kernel, 1.0), 20_001)
    mass = naive.density_kernel(kernel, r).astype(float) * r ** (d - 1)
    cdf = cumulative_trapezoid(mass, r, initial=0)
    assert kstest(radii, lambda at: np.interp(at, r, cdf / cdf[-1])).statistic < KS_BOUND
    directions = Z / radii[:, None]
    assert np.abs(directions.mean(axis=0)).max() < MEAN_BOUND
    squares = directions.T @ directions / DRAWS
    assert np.abs(squares - np.eye(d) / d).max() < MEAN_BOUND


@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_follow_the_density(kernel):
    X, weights = [[0.0], [1.0], [7.0]], [1.0, 3.0, 0.0]
    density = KernelDensity(kernel=kernel, bandwidth=0.6).fit(X, sample_weight=weights)
    draws = density.sample(DRAWS, random_state=3)
    assert draws.shape == (DRAWS, 1)
    top = 0.6 * {"gaussian": 10.0, "exponential": 30.0}.get(kernel, 1.0)
    grid = np.linspace(-top, 1 + top, 2001)
    cdf = cumulative_trapezoid(np.exp(density.score_samples(grid[:, None])), grid, initial=0)
    # The trapezoids are wrong by a step times a jump of the tophat, 1.1e-3 * 0.63, or less.
    statistic = kstest(draws[:, 0], lambda at: np.interp(at, grid, cdf)).statistic
    assert statistic < KS_BOUND + 1e-3


@pytest.mark.parametrize("bandwidth", [2.0, [1.0, 2.0], [[1.0, 0.5], [0.5, 4.0]]])
def test_draws_have_the_bandwidths_covariance(bandwidth):
    density = KernelDensity(bandwidth=bandwidth).fit([[5.0, -5.0]])
    draws = density.sample(DRAWS, random_state=1)
    matrix = np.asarray(bandwidth)
    expected = matrix if matrix.ndim == 2 else np.diag(matrix**2 * np.ones(2))
    # The standard error of a covariance is at most sqrt(2 / N) of the variances; six of them.
    bound = 6 * math.sqrt(2 / DRAWS) * expected.max()
    np.testing.assert_allclose(np.cov(draws.T), expected, rtol=0, atol=bound)


def test_gaussian_draws_match_scikit_learn(rows):
    ours = KernelDensity(bandwidth=0.4).fit(rows).sample(20, random_state=5)
    theirs = Peer(bandwidth=0.4).fit(rows).sample(20, random_state=5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_draws_never_come_from_rows_of_zero_weight():
    weights = np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    density = KernelDensity(kernel="tophat", bandwidth=0.1)
    density.fit(np.arange(5.0)[:, None], sample_weight=weights)
    draws = density.sample(1000, random_state=0).round()
    assert set(draws.ravel()) == {1.0, 3.0}


def test_draws_keep_the_precision_of_the_rows(rows):
    density = KernelDensity(kernel="cosine").fit(rows.astype(np.float32))
    assert density.sample(3, random_state=0).dtype == np.float32
    assert density.sample().shape == (1, 3)


# The estimator as an object


def test_fitted_state_is_arrays_strings_and_numbers(rows, queries):
    weights = np.arange(len(rows))
    density = KernelDensity(bandwidth=np.eye(3), kernel="biweight").fit(rows, sample_weight=weights)
    state = density.__getstate__()
    plain = (np.ndarray, str, int, float, dict, type(None))
    assert all(isinstance(value, plain) for value in state.values())
    again = pickle.loads(pickle.dumps(density))
    assert np.array_equal(again.score_samples(queries), density.score_samples(queries))
    assert np.array_equal(again.sample(5, random_state=0), density.sample(5, random_state=0))


def test_fit_copies_the_data(rows, queries):
    X = rows.copy()
    density = KernelDensity().fit(X)
    before = density.score_samples(queries)
    X[:] = 0
    assert np.array_equal(density.score_samples(queries), before)
    again = pickle.loads(pickle.dumps(density))
    assert np.array_equal(again.score_samples(queries), before)


def test_refit_replaces_the_first_fit(rows, queries):
    density = KernelDensity(bandwidth="scott").fit(rows[:10], sample_weight=np.arange(10))
    density.set_params(kernel="linear", bandwidth=2.0).fit(rows)
    fresh = clone(density).fit(rows)
    assert np.array_equal(density.score_samples(queries), fresh.score_samples(queries))


def test_the_kernel_takes_effect_at_fit_and_tolerances_at_once(rows, queries):
    density = KernelDensity().fit(rows)
    before = density.score_samples(queries)
    density.set_params(kernel="linear")
    assert np.array_equal(density.score_samples(queries), before)
    with pytest.raises(ValueError, match="rtol"):
        density.set_params(rtol=2.0).score_samples(queries)


def test_a_failed_fit_changes_nothing(rows, queries):
    density = KernelDensity().fit(rows)
    before = density.score_samples(queries)
    with pytest.raises(ValueError, match="positive definite"):
        density.set_params(bandwidth=np.zeros((2, 2))).fit(rows[:, :2])
    assert density.n_features_in_ == 3
    assert np.array_equal(density.score_samples(queries), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(kernel="cauchy"), "kernel"),
        (dict(algorithm="brute"), "algorithm"),
        (dict(metric="manhattan"), "Euclidean"),
        (dict(metric_params={"p": 3}), "Euclidean"),
        (dict(breadth_first="yes"), "breadth_first"),
        (dict(leaf_size=0), "leaf_size"),
        (dict(bandwidth="cv"), "bandwidth='cv'"),
        (dict(bandwidth=-1.0), "bandwidth"),
        (dict(bandwidth=None), "bandwidth"),
        (dict(rtol=1.0), "rtol"),
        (dict(atol=-1.0), "atol"),
        (dict(method="dual"), "method"),
        (dict(n_jobs=1.5), "n_jobs"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, message, rows):
    with pytest.raises(ValueError, match=message):
        KernelDensity(**parameters).fit(rows)


def test_what_scikit_learn_accepts_is_accepted(rows, queries):
    options = dict(breadth_first=False, leaf_size=3, metric="l2", metric_params={})
    same = KernelDensity(algorithm="ball_tree", **options).fit(rows).score_samples(queries)
    np.testing.assert_allclose(same, KernelDensity().fit(rows).score_samples(queries), rtol=1e-12)


def test_unfitted_estimator_raises_not_fitted_error(queries):
    for ask in ("score_samples", "score"):
        with pytest.raises(NotFittedError):
            getattr(KernelDensity(), ask)(queries)
    with pytest.raises(NotFittedError):
        KernelDensity().sample()


def test_bad_weights_are_called_sample_weight(rows):
    with pytest.raises(ValueError, match="sample_weight"):
        KernelDensity().fit(rows, sample_weight=np.ones(3))


def test_feature_names_are_kept_and_compared(rows):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows, columns=["a", "b", "c"])
    density = KernelDensity().fit(X)
    assert list(density.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        density.score_samples(X[["c", "b", "a"]])


def test_kernel_density_works_in_a_grid_search(rows):
    grid = {"bandwidth": [0.01, 0.6, 30.0]}
    assert GridSearchCV(KernelDensity(), grid, cv=2).fit(rows).best_params_ == {"bandwidth": 0.6}


def test_density_of_one_row_is_the_kernel():
    density = KernelDensity(kernel="epanechnikov", bandwidth=2.0).fit([[1.0]])
    np.testing.assert_allclose(
        np.exp(density.score_samples([[1.0], [2.0], [3.0], [9.0]])),
        [3 / 8, 3 / 8 * 3 / 4, 0, 0],
        rtol=1e-15,
    )


def test_fit_is_silent_by_default_and_without_a_terminal(rows, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for verbose in (0, 1):
            KernelDensity(bandwidth="loo", verbose=verbose).fit(rows).score(rows)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
