from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm, ortho_group
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import KernelDensity, ManifoldParzen, engine, manifold_parzen
from fastmetric.core.error_bounds import ProductTolerance
from fastmetric.learn import costs, nearest_neighbours
from fastmetric.learn.manifold import mixture_density
from fastmetric.learn.manifold.neighbourhood_pca import _leading
from tests.manifold_problems import EPS, assert_logs, problems, sharpness_of
from tests.twins import manifold as naive_manifold


@parametrize_with_checks(
    [
        ManifoldParzen(1, n_neighbors=5, noise_variance=0.1),
        ManifoldParzen(0, n_neighbors=1, noise_variance=2.0, n_jobs=1),
        ManifoldParzen(1, n_neighbors=8, noise_variance=0.3, neighborhood="soft", bandwidth=2.0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_assert_logs_can_fail():
    X, query = np.ones((2, 2)), np.zeros((2, 2))
    with pytest.raises(AssertionError):
        assert_logs(np.array([0.0, 1e-9]), np.zeros(2), X, query, 1.0)


# The density


@settings(max_examples=60)
@given(problem=problems())
def test_the_density_is_that_of_the_twin(problem):
    X, query, q, k, noise = problem
    ours = ManifoldParzen(q, n_neighbors=k, noise_variance=noise).fit(X).score_samples(query)
    covariances = naive_manifold.local_covariances(X, k)
    expected = naive_manifold.density(X, query, covariances, q, noise)
    assert_logs(ours, expected, X, query, noise, sharpness_of(covariances, q))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_features", [3, 40])
@pytest.mark.parametrize("noise", [0.5, 1e-3, 1e-10])
def test_density_of_given_directions_matches_the_twin(dtype, n_features, noise):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, n_features)).astype(dtype)
    query = rng.standard_normal((70, n_features)).astype(dtype)
    model = ManifoldParzen(2, n_neighbors=7, noise_variance=noise).fit(X)
    expected = naive_manifold.density_along(X, model.directions_, model.variances_, query, noise)
    ours = model.score_samples(query)
    assert ours.dtype == dtype
    # As promised: 1e-9 and 0.01 by products. By differences, in float64: a length across of
    # sqrt(2 |log density|) deviations is off by eps of the whole difference, below 12 here.
    promised = 1e-9 if dtype == np.float64 else 0.01
    size = np.abs(expected.astype(float))
    by_differences = 8 * EPS * (12 / np.sqrt(noise)) * np.sqrt(2 * size)
    error = np.abs(ours - expected.astype(float))
    assert np.all(error <= promised + by_differences + 2 * np.finfo(dtype).eps * size)


def test_products_and_differences_are_both_used_and_agree(monkeypatch):
    rng = np.random.default_rng(1)
    X, query = rng.standard_normal((130, 20)), rng.standard_normal((600, 20))
    model = ManifoldParzen(3, n_neighbors=9, noise_variance=0.2).fit(X)
    by_products = model.score_samples(query)
    monkeypatch.setattr(mixture_density, "_add_by_products", None)  # must not be called
    monkeypatch.setattr(mixture_density, "LOCAL_GAUSSIANS", ProductTolerance(0.0, 0.0))
    by_differences = model.score_samples(query)
    np.testing.assert_allclose(by_products, by_differences, rtol=1e-13, atol=1e-12)
    assert np.any(by_products != by_differences)


@pytest.mark.parametrize("noise", [1e-4, 1e-10, 1e-14])
def test_density_on_a_line_is_accurate_for_flat_kernels(noise):
    rng = np.random.default_rng(2)
    n_features, sigma = 12, np.sqrt(noise)
    t = np.sort(rng.uniform(0, 1, 50))
    basis = ortho_group.rvs(n_features, random_state=3)
    model = ManifoldParzen(1, n_neighbors=49, noise_variance=noise).fit(np.outer(t, basis[0]))
    at, off = rng.uniform(0, 1, 30), rng.standard_normal(30)
    query = np.outer(at, basis[0]) + sigma * np.outer(off, basis[1])
    widths = np.sqrt(((t[:, None] - t) ** 2).sum(axis=1) / 49 + noise)
    along = np.log(norm.pdf(at[:, None], t, widths).mean(axis=1))
    across = norm.logpdf(sigma * off, scale=sigma) + (n_features - 2) * norm.logpdf(0, scale=sigma)
    # Rounding of the rows themselves, some eps, moves them across by that.
    tolerance = 100 * EPS / sigma + 1e-11
    np.testing.assert_allclose(model.score_samples(query), along + across, atol=tolerance, rtol=0)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), soft=st.booleans())
def test_densities_on_a_line_integrate_to_one(seed, soft):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((int(rng.integers(2, 30)), 1))
    options = dict(neighborhood="soft") if soft else {}
    model = ManifoldParzen(1, n_neighbors=4, noise_variance=0.02, **options).fit(X)
    reach = 9 * np.sqrt(model.variances_.max() + 0.02)
    x = np.linspace(X.min() - reach, X.max() + reach, 4001)
    assert np.trapezoid(np.exp(model.score_samples(x[:, None])), x) == pytest.approx(1, abs=1e-9)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), q=st.integers(0, 2), soft=st.booleans())
def test_densities_in_the_plane_integrate_to_one(seed, q, soft):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, 2))
    options = dict(neighborhood="soft", bandwidth=0.7) if soft else {}
    model = ManifoldParzen(q, n_neighbors=3, noise_variance=0.05, **options).fit(X)
    reach = 8 * np.sqrt(model.variances_.max(initial=0) + 0.05)
    side = np.linspace(np.abs(X).max() + reach, -np.abs(X).max() - reach, 500)
    # The trapezoid rule is as good as exact for Gaussians wider than two thirds of its step.
    step = side[0] - side[1]
    assert step < 1.5 * np.sqrt(0.05)
    plane = np.column_stack([part.ravel() for part in np.meshgrid(side, side)])
    assert np.exp(model.score_samples(plane)).sum() * step**2 == pytest.approx(1, abs=1e-6)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), q=st.integers(0, 3))
def test_density_is_equivariant_under_rigid_motions(seed, q):
    rng = np.random.default_rng(seed)
    X, query, shift = rng.standard_normal((30, 4)), rng.standard_normal((8, 4)), 5.0
    turn = ortho_group.rvs(4, random_state=seed)
    model = ManifoldParzen(q, n_neighbors=6, noise_variance=0.1)
    before = model.fit(X).score_samples(query)
    moved, moved_query = X @ turn + shift, query @ turn + shift
    after = model.fit(moved).score_samples(moved_query)
    sharpness = sharpness_of(naive_manifold.local_covariances(X, 6), q)
    assert_logs(before, after, moved, moved_query, 0.1, sharpness)


@pytest.mark.parametrize("n_features", [2, 15])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zero_components_is_kernel_density(n_features, dtype):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, n_features)).astype(dtype)
    query = rng.standard_normal((50, n_features)).astype(dtype)
    ours = ManifoldParzen(0, n_neighbors=1, noise_variance=0.25).fit(X).score_samples(query)
    parzen = KernelDensity(bandwidth=0.5).fit(X).score_samples(query)
    np.testing.assert_allclose(ours, parzen, rtol=50 * np.finfo(dtype).eps)


def test_all_directions_of_all_others_are_full_covariances():
    rng = np.random.default_rng(5)
    X, query = rng.standard_normal((40, 3)) * [1, 2, 3], rng.standard_normal((10, 3))
    model = ManifoldParzen(3, n_neighbors=39, noise_variance=0.1).fit(X)
    gaps = X.mean(axis=0) - X
    shared = np.cov(X.T, bias=True)
    expected = np.mean(
        [
            multivariate_normal(x, 40 / 39 * (shared + np.outer(g, g)) + 0.1 * np.eye(3)).pdf(query)
            for x, g in zip(X, gaps, strict=True)
        ],
        axis=0,
    )
    np.testing.assert_allclose(model.score_samples(query), np.log(expected), rtol=1e-11)


def test_rows_equally_far_along_a_line_share_one_covariance():
    a = np.array([1.0, -0.5, 2.0])
    X = np.repeat([a, -a], 4, axis=0)
    query = np.random.default_rng(6).standard_normal((10, 3))
    model = ManifoldParzen(3, n_neighbors=7, noise_variance=0.3).fit(X)
    shared = 8 / 7 * 2 * np.outer(a, a) + 0.3 * np.eye(3)
    expected = KernelDensity(bandwidth=shared).fit(X).score_samples(query)
    np.testing.assert_allclose(model.score_samples(query), expected, rtol=1e-11)


def test_more_neighbours_than_rows_are_all_others():
    X = np.random.default_rng(7).standard_normal((6, 2))
    scores = [
        ManifoldParzen(2, n_neighbors=k, noise_variance=0.1).fit(X).score_samples(X)
        for k in (5, 6, 100)
    ]
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


def test_directions_that_do_not_exist_change_nothing():
    X = np.random.default_rng(8).standard_normal((3, 6))
    many = ManifoldParzen(5, n_neighbors=5, noise_variance=0.1).fit(X)
    few = ManifoldParzen(2, n_neighbors=5, noise_variance=0.1).fit(X)
    assert many.directions_.shape == (3, 2, 6)
    assert np.array_equal(many.score_samples(X), few.score_samples(X))


@pytest.mark.parametrize("n_features", [2, 20])
def test_equal_rows_are_one_gaussian(n_features):
    X = np.full((30, n_features), 1e5)
    model = ManifoldParzen(2, n_neighbors=5, noise_variance=0.5).fit(X)
    query = X[:4] + np.arange(4)[:, None]
    expected = norm.logpdf(query - X[0], scale=np.sqrt(0.5)).sum(axis=1)
    np.testing.assert_allclose(model.score_samples(query), expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-150, 1e-25, 1e-19, 1e15, 1e20, 1e150])
def test_density_is_equivariant_under_the_unit_of_length(scale, monkeypatch):
    """Products in float32 may screen: its range is not that of float64."""
    monkeypatch.setattr(costs, "SCREENING_PRODUCTS", 0)
    rng = np.random.default_rng(29)
    X = rng.standard_normal((200, 20))
    query = X[:40] + 0.01
    expected = ManifoldParzen(2, n_neighbors=5, noise_variance=0.02).fit(X).score_samples(query)
    model = ManifoldParzen(2, n_neighbors=5, noise_variance=0.02 * scale**2).fit(scale * X)
    ours = model.score_samples(scale * query) + 20 * np.log(scale)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_rows_with_tiny_noise_stay_finite(dtype):
    X = np.zeros((40, 3), dtype)
    logs = ManifoldParzen(1, n_neighbors=5, noise_variance=1e-50).fit(X).score_samples(X)
    np.testing.assert_allclose(logs, -1.5 * np.log(2 * np.pi * 1e-50), rtol=1e-6)


def test_narrow_soft_neighbourhood_is_the_nearest_row():
    X = np.random.default_rng(30).standard_normal((30, 2))
    options = dict(n_neighbors=4, noise_variance=0.1, neighborhood="soft", bandwidth=1e-200)
    soft = ManifoldParzen(1, **options).fit(X)
    nearest = ManifoldParzen(1, n_neighbors=1, noise_variance=0.1).fit(X)
    np.testing.assert_allclose(soft.score_samples(X), nearest.score_samples(X), rtol=1e-12)


def test_distant_clusters_are_kept_apart():
    rng = np.random.default_rng(9)
    X = rng.standard_normal((40, 14))
    far = np.concatenate([X, X + 1e9])
    options = dict(n_neighbors=6, noise_variance=0.1)
    near = ManifoldParzen(2, **options).fit(X).score_samples(X)
    both = ManifoldParzen(2, **options).fit(far).score_samples(far)
    # Half of the rows are out of reach; the shift rounds rows to 1e-7.
    np.testing.assert_allclose(both[:40], near - np.log(2), rtol=0, atol=1e-9)
    np.testing.assert_allclose(both[40:], near - np.log(2), rtol=0, atol=1e-3)


def test_tails_stay_finite():
    X = np.random.default_rng(10).standard_normal((20, 3))
    logs = ManifoldParzen(1, n_neighbors=4, noise_variance=0.1).fit(X).score_samples([[1e6] * 3])
    assert -1e15 < logs[0] < -1e10


# Neighbourhoods


@pytest.mark.parametrize("bandwidth", [None, 0.6, 1e-3])
def test_soft_neighbourhoods_are_those_of_the_twin(bandwidth):
    rng = np.random.default_rng(11)
    X, query = rng.standard_normal((50, 3)), rng.standard_normal((20, 3))

    def weights(s):
        h = np.sqrt(s.max()) / 2 if bandwidth is None else bandwidth
        return np.exp(-(s - s.min()) / (2 * h * h))

    options = dict(n_neighbors=12, noise_variance=0.1, neighborhood="soft", bandwidth=bandwidth)
    ours = ManifoldParzen(3, **options).fit(X).score_samples(query)
    covariances = naive_manifold.local_covariances(X, 12, weights)
    expected = naive_manifold.density(X, query, covariances, 3, 0.1)
    assert_logs(ours, expected, X, query, 0.1)


def test_wide_soft_neighbourhood_is_a_hard_one():
    rng = np.random.default_rng(12)
    X, query = rng.standard_normal((50, 3)), rng.standard_normal((20, 3))
    options = dict(n_neighbors=49, noise_variance=0.1)
    hard = ManifoldParzen(2, **options).fit(X)
    soft = ManifoldParzen(2, **options, neighborhood="soft", bandwidth=1e8).fit(X)
    np.testing.assert_allclose(soft.score_samples(query), hard.score_samples(query), rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", [0.0, 1e4])
@pytest.mark.parametrize("n_features", [3, 30])
def test_neighbours_are_exact(n_features, spread, dtype):
    """Clusters far apart: products alone would not tell the neighbours."""
    rng = np.random.default_rng(13)
    X = rng.standard_normal((300, n_features)) + spread * rng.integers(0, 3, (300, 1))
    X = X.astype(dtype)
    search = nearest_neighbours.others(X, 9)
    for rows in search.blocks(100):
        found = search.nearest(rows)
        expected = naive_manifold.nearest_others(X, 9)[rows]
        assert np.array_equal(np.sort(found), np.sort(expected))


def test_duplicated_row_is_never_its_own_neighbour():
    for n_features in (2, 20):
        X = np.concatenate([np.zeros((30, n_features)), np.ones((5, n_features))])
        search = nearest_neighbours.others(X, 6)
        for rows in search.blocks(100):
            found = search.nearest(rows)
            assert not np.any(found == rows[:, None])
            assert all(len(set(row)) == 6 for row in found.tolist())
            assert np.all((X[found, 0] == X[rows, :1]).sum(axis=1) >= 4)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (5, 5)])
@pytest.mark.parametrize("smallest", [0.1, 1e-3, 1e-9, 0.0])
def test_leading_directions_are_orthonormal_and_accurate(shape, smallest):
    rng = np.random.default_rng(14)
    left, right = (ortho_group.rvs(side, random_state=1) for side in shape)
    singular = np.array([1.0, 0.3, smallest])
    gaps = np.stack([(left[:, :3] * (scale * singular)) @ right[:3] for scale in rng.random(4)])
    values, vectors = _leading(gaps, 3, 1e-4)
    eye = np.broadcast_to(np.eye(3), (4, 3, 3))
    np.testing.assert_allclose(vectors @ vectors.transpose(0, 2, 1), eye, atol=1e-11)
    sizes = np.sqrt(values / values[:, :1])
    np.testing.assert_allclose(sizes, np.tile(singular, (4, 1)), rtol=1e-11, atol=1e-15)
    if smallest:
        along = np.abs(np.einsum("ijd,jd->ij", vectors, right[:3]))
        np.testing.assert_allclose(along, 1, atol=1e-6 if smallest == 1e-9 else 1e-11)


# The grid


@pytest.mark.parametrize("n_features", [3, 20])
@pytest.mark.parametrize("smallest", [0.01, 1e-12])
def test_grid_scores_match_separate_fits(n_features, smallest):
    rng = np.random.default_rng(15)
    X, query = rng.standard_normal((80, n_features)), rng.standard_normal((30, n_features))
    counts, noises = [3, 0, 1, 1], [0.5, smallest]
    model = ManifoldParzen(3, n_neighbors=7, noise_variance=1.0).fit(X)
    grid = model.score_samples_grid(query, n_components=counts, noise_variance=noises)
    assert grid.shape == (4, 2, 30)
    for count, by_noise in zip(counts, grid, strict=True):
        for noise, logs in zip(noises, by_noise, strict=True):
            one = ManifoldParzen(count, n_neighbors=7, noise_variance=noise).fit(X)
            np.testing.assert_allclose(logs, one.score_samples(query), rtol=1e-12)
    assert np.array_equal(model.score_samples_grid(query)[0, 0], model.score_samples(query))


def test_grid_refuses_values_that_were_not_fitted():
    X = np.random.default_rng(16).standard_normal((20, 3))
    model = ManifoldParzen(2, n_neighbors=7, noise_variance=1.0).fit(X)
    with pytest.raises(ValueError, match="n_components should be an integer, from 0 to 2; got 3"):
        model.score_samples_grid(X, n_components=[3])
    with pytest.raises(ValueError, match="noise_variance should be"):
        model.score_samples_grid(X, noise_variance=[1.0, 0.0])
    with pytest.raises(ValueError, match="list of values"):
        model.score_samples_grid(X, noise_variance=[])


def test_grid_search_selects_the_noise_variance():
    rng = np.random.default_rng(17)
    t = rng.uniform(0, 6, 200)
    X = np.column_stack([np.cos(t), np.sin(t)]) + 0.02 * rng.standard_normal((200, 2))
    model = ManifoldParzen(1, n_neighbors=8, noise_variance=1.0)
    search = GridSearchCV(model, {"noise_variance": [1e-6, 4e-4, 0.1]}, cv=4).fit(X)
    assert search.best_params_ == {"noise_variance": 4e-4}
    best = search.cv_results_["mean_test_score"].max()
    assert best == pytest.approx(search.best_score_)


# The machine


@pytest.mark.parametrize("n_features", [3, 30])
@pytest.mark.parametrize("noise", [0.3, 1e-12])
def test_the_same_bits_on_any_number_of_threads(n_features, noise):
    rng = np.random.default_rng(18)
    X, query = rng.standard_normal((1500, n_features)), rng.standard_normal((700, n_features))
    results = []
    for jobs in (1, 2, 3):
        model = ManifoldParzen(2, n_neighbors=6, noise_variance=noise, n_jobs=jobs).fit(X)
        results.append((model.directions_, model.variances_, model.score_samples(query)))
    for other in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(results[0], other, strict=True))


def test_float32_is_close_to_float64():
    rng = np.random.default_rng(19)
    X, query = rng.standard_normal((300, 16)), rng.standard_normal((100, 16))
    model = ManifoldParzen(3, n_neighbors=8, noise_variance=0.2)
    wide = model.fit(X).score_samples(query)
    narrow = model.fit(X.astype(np.float32))
    assert narrow.directions_.dtype == narrow.variances_.dtype == np.float32
    logs = narrow.score_samples(query.astype(np.float32))
    assert logs.dtype == np.float32
    np.testing.assert_allclose(logs, wide, rtol=0, atol=0.01)
    assert narrow.score_samples(query).dtype == np.float64


def test_samples_have_the_moments_of_the_mixture():
    rng = np.random.default_rng(20)
    X = rng.standard_normal((30, 3)) * [1, 2, 3]
    model = ManifoldParzen(2, n_neighbors=5, noise_variance=0.2).fit(X)
    draws = model.sample(40_000, random_state=0)
    inner = np.einsum("iqa,iq,iqb->ab", model.directions_, model.variances_, model.directions_)
    expected = np.cov(X.T, bias=True) + inner / 30 + 0.2 * np.eye(3)
    np.testing.assert_allclose(draws.mean(axis=0), X.mean(axis=0), atol=0.1)  # 5 deviations
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06 * expected.max())
    assert np.array_equal(draws[:5], model.sample(40_000, random_state=0)[:5])


def test_a_pickle_scores_alike_and_a_clone_is_unfitted():
    X = np.random.default_rng(21).standard_normal((40, 3))
    model = ManifoldParzen(2, n_neighbors=5, noise_variance=0.2, verbose=1).fit(X)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.score_samples(X), model.score_samples(X))
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())
    with pytest.raises(NotFittedError):
        clone(model).score_samples(X)


def test_the_estimator_does_not_change_with_the_callers_array():
    X = np.random.default_rng(22).standard_normal((40, 3))
    query = X.copy()
    model = ManifoldParzen(2, n_neighbors=5, noise_variance=0.2).fit(X)
    before = model.score_samples(query)
    X[:] = 0
    assert np.array_equal(before, model.score_samples(query))


# The border


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": -1}, "n_components should be an integer"),
        ({"n_components": 1.0}, "n_components should be an integer"),
        ({"n_components": 4}, "n_components=4 is too many: n_neighbors=5 rows with n_features=3"),
        ({"n_components": 3, "n_neighbors": 2}, "n_components=3 is too many: n_neighbors=2"),
        ({"n_neighbors": 0}, "n_neighbors should be an integer"),
        ({"noise_variance": 0.0}, "noise_variance should be a finite number above 0"),
        ({"noise_variance": 1e-310}, "noise_variance should be a finite number above 0"),
        ({"noise_variance": np.inf}, "noise_variance should be a finite number above 0"),
        ({"noise_variance": "a"}, "noise_variance should be a finite number above 0"),
        ({"neighborhood": "round"}, "neighborhood='round' is not known"),
        ({"bandwidth": 1.0}, "bandwidth=1.0 is for neighborhood='soft'"),
        ({"neighborhood": "soft", "bandwidth": -1}, "bandwidth should be a finite number above"),
        ({"rtol": 1.0}, "rtol should be less than 1"),
        ({"rtol": -0.1}, "rtol should be"),
        ({"n_jobs": 0}, "n_jobs should be"),
    ],
)
def test_bad_parameters_are_refused_and_change_nothing(parameters, message):
    X = np.random.default_rng(23).standard_normal((20, 3))
    model = ManifoldParzen(1, n_neighbors=5, noise_variance=0.1).fit(X)
    before = model.score_samples(X)
    model.set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    model.set_params(n_jobs=None, rtol=0.0)
    assert np.array_equal(model.score_samples(X), before)


@pytest.mark.parametrize(
    "X",
    [
        [[1.0, np.nan], [0.0, 1.0]],
        [[1.0, np.inf], [0.0, 1.0]],
        [[1.0, 2.0]],
        [1.0, 2.0],
        [["a", "b"], ["c", "d"]],
        [["1", "2"], ["3", "4"]],
        [[1e200, 0.0], [0.0, 1.0]],
        np.empty((0, 2)),
    ],
)
def test_wrong_data_are_refused(X):
    model = ManifoldParzen(1, n_neighbors=5, noise_variance=0.1)
    with pytest.raises(ValueError):  # noqa: PT011
        model.fit(X)
    assert set(vars(model)) == set(model.get_params())


def test_too_little_memory_is_refused_in_advance(monkeypatch):
    monkeypatch.setattr(manifold_parzen, "_available_memory", lambda: 10_000)
    X = np.random.default_rng(24).standard_normal((200, 5))
    model = ManifoldParzen(3, n_neighbors=5, noise_variance=0.1)
    with pytest.raises(MemoryError, match=r"200 \* 3 \* 5 numbers of 8 bytes.*or give float32"):
        model.fit(X)
    model.set_params(n_components=0).fit(X)


def test_available_memory_is_read_from_the_system():
    available = manifold_parzen._available_memory()
    assert available is None or 2**20 < available < 2**50


def test_object_and_read_only_arrays_are_taken():
    X = np.random.default_rng(25).standard_normal((20, 2))
    model = ManifoldParzen(1, n_neighbors=5, noise_variance=0.1)
    expected = model.fit(X).score_samples(X)
    X.setflags(write=False)
    assert np.array_equal(model.fit(X).score_samples(X), expected)
    assert np.array_equal(model.fit(X.astype(object)).score_samples(X), expected)
    assert np.array_equal(model.fit(np.asfortranarray(X)).score_samples(X), expected)


def test_ctrl_c_leaves_the_estimator_as_it_was(monkeypatch):
    X = np.random.default_rng(26).standard_normal((50, 2))
    model = ManifoldParzen(1, n_neighbors=5, noise_variance=0.1)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert set(vars(model)) == set(model.get_params())
