"""Mean shift: it ascends the density, and ends at its modes."""

from __future__ import annotations

import pickle
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import MeanShift
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.kernel_sums.walk_ways import TreeWalk
from fastmetric.learn.modes import trajectories
from tests.twins import density as naive


class Cloud(NamedTuple):
    """Points and a width."""

    X: np.ndarray
    h: float


@st.composite
def clouds(draw, max_n=60, max_d=5):
    """Draw points that are normal, on a lattice, far apart, on a line, or all the same."""
    n, d = draw(st.integers(1, max_n)), draw(st.integers(1, max_d))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, d))
    shape = draw(st.sampled_from(["normal", "lattice", "clusters", "line", "constant", "one"]))
    if shape == "lattice":
        X = np.round(2 * X) / 2
    elif shape == "clusters":
        X += 1e6 * rng.integers(0, 3, (n, 1))
    elif shape == "line":
        X = X[:, :1] * np.ones(d)
    elif shape == "constant":
        X[:, 0] = 3.0
    elif shape == "one":
        X[:] = X[0]
    scale = 10.0 ** draw(st.integers(-8, 8))
    return Cloud(X * scale, scale * draw(st.sampled_from([0.3, 0.7, 2.0])))


def blobs(n=400, seed=0):
    """Return four separated clusters in the plane, and their numbers."""
    centers = [[0, 0], [8, 1], [-3, 9], [6, -8]]
    return make_blobs(n, centers=centers, cluster_std=[1, 0.5, 1.5, 0.7], random_state=seed)


def overlapping(n=300, seed=0):
    """Return points with hills that run into each other."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 2)) * [2, 1] + 2.5 * rng.integers(0, 2, (n, 2))


def fitted(X, **parameters):
    """Return a fit that may not have converged, in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MeanShift(**parameters).fit(X)


# The step


@settings(max_examples=60)
@given(clouds(), st.sampled_from([np.float64, np.float32]), st.booleans())
def test_a_step_is_the_weighted_mean_of_the_points(cloud, dtype, far):
    X, h = (cloud.X / cloud.h).astype(dtype), 1.0
    query = X[::2] + dtype(30.0 if far else 0.7)
    logs, steps = KernelSums(X, bandwidth=h).mean_shift_steps(query)
    s = np.asarray(naive.sq_distances(query, X), float) / 2
    nearest = s.min(axis=1)
    # A kernel is off by eps times its exponent, a coordinate by its rounding.
    eps = np.finfo(dtype).eps
    reach = np.sqrt(2 * (nearest + 100))
    bound = 40 * eps * (1 + nearest + X.shape[1]) * reach + 4 * eps * np.abs(X).max()
    error = np.abs(steps - naive.mean_shift_step(X, query, h)).max(axis=1)
    assert np.all(error <= bound)
    truth = np.log(naive.density_sums(X, query) + np.finfo(np.longdouble).tiny)
    assert np.all(np.abs(logs - truth) <= 40 * eps * (1 + nearest + X.shape[1]))


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steps_over_trees_are_those_over_all_pairs(d, dtype):
    rng = np.random.default_rng(d)
    X, query = rng.standard_normal((3000, d)).astype(dtype), rng.standard_normal((200, d))
    sums = KernelSums(X, bandwidth=0.2)
    truth = naive.mean_shift_step(X, query.astype(dtype), 0.2)
    for rtol in (0.0, 1e-3):
        way = TreeWalk(sums.way_of_steps(query.astype(dtype), rtol).problem)
        steps = way.mean_shift().steps
        # What is left out lies within a few dozen bandwidths.
        tolerance = 0.2 * 30 * max(rtol, 100 * np.finfo(dtype).eps)
        np.testing.assert_allclose(steps, truth.astype(float), rtol=0, atol=tolerance)


# The ascent


@settings(max_examples=40)
@given(clouds())
def test_density_never_decreases_along_a_trajectory(cloud):
    X, h = cloud
    sums = KernelSums(X, bandwidth=h)
    running = trajectories._Trajectories(X, h)
    running.meet()
    before = naive.log_density(X, running.places, h)
    # Exponents of coordinates that are rounded: their differences are off by eps |x|.
    slack = 1e-12 + 8 * np.finfo(float).eps * np.abs(X).max() / h * 40
    for _ in range(30):
        running.move(sums.mean_shift_steps, 1e-6)
        running.meet()
        after = naive.log_density(X, running.places, h)
        assert np.all(after >= before - slack)
        before = after


def test_density_check_can_fail():
    # Of the test above: a step to the side decreases the density.
    X = overlapping(50)
    before = naive.log_density(X, X)
    after = naive.log_density(X, X - 2 * naive.mean_shift_step(X, X))
    assert np.any(after < before - 1e-3)


def test_over_relaxation_saves_most_steps():
    X = overlapping()
    sums = KernelSums(X, bandwidth=0.7)
    fast = trajectories.follow(sums.mean_shift_steps, X, 0.7, tol=1e-8, max_iter=2000)
    slow = 0
    points = X.copy()
    while np.abs(step := sums.mean_shift_steps(points)[1]).max() > 0.7e-8:
        points, slow = points + step, slow + 1
    assert fast.n_iter < slow / 3


def test_labels_match_plain_mean_shift_without_shortcuts(monkeypatch):
    monkeypatch.setattr(trajectories, "_LONGEST", 0.0)
    monkeypatch.setattr(trajectories, "MEET", 1e-5)
    for seed in range(3):
        X = overlapping(120, seed=seed)
        model = MeanShift(bandwidth=0.6, rtol=0.0, max_iter=20_000).fit(X)
        ends = naive.mean_shift(X, X, 0.6).astype(float)
        np.testing.assert_allclose(model.cluster_centers_[model.labels_], ends, atol=1e-4)


def test_shortcuts_move_few_rows_to_another_mode():
    for seed in range(3):
        X = overlapping(150, seed=seed)
        model = MeanShift(bandwidth=0.6).fit(X)
        ends = naive.mean_shift(X, X, 0.6).astype(float)
        gaps = np.linalg.norm(model.cluster_centers_[model.labels_] - ends, axis=1)
        assert np.mean(gaps > 0.01) < 0.05


# The modes


@settings(max_examples=60)
@given(clouds())
def test_centres_have_zero_gradient_and_higher_density(cloud):
    X, h = cloud
    model = MeanShift(bandwidth=h, max_iter=3000).fit(X)
    rounding = 16 * np.finfo(float).eps * np.abs(X).max() / h
    lengths = np.linalg.norm(
        naive.mean_shift_step(X, model.cluster_centers_, h).astype(float), axis=1
    )
    assert np.all(lengths <= h * (1e-6 + 2 * rounding))
    np.testing.assert_allclose(model.gradient_norms_, lengths / h, atol=1e-9 + 2 * rounding)
    heights = naive.log_density(X, model.cluster_centers_, h)
    slack = 4e-3 + 40 * rounding  # the leaps gain by estimates that are each within rtol
    assert np.all(naive.log_density(X, X, h) <= heights[model.labels_] + slack)
    assert np.all(np.diff(heights) <= 1e-9 + 40 * rounding)
    assert np.all(model.log_density_bounds_[:, 0] <= heights)
    assert np.all(model.log_density_bounds_[:, 1] >= heights)
    assert set(model.labels_) == set(range(len(model.cluster_centers_)))


def test_separated_clusters_are_found():
    X, y = blobs()
    model = MeanShift(bandwidth=1.5).fit(X)
    assert len(model.cluster_centers_) == 4
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert adjusted_rand_score(y, MeanShift().fit_predict(X)) == 1.0


def test_clusters_a_million_apart_are_found():
    X, y = blobs()
    X = X + 1e6 * y[:, None]
    model = MeanShift(bandwidth=1.5).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0


def test_saddle_point_is_not_a_mode():
    X = np.array([[-2.0, 0.0], [2.0, 0.0]])
    model = MeanShift(bandwidth=1.0, seeds=[[0.0, 0.0]]).fit(X)
    assert abs(abs(model.cluster_centers_[0, 0]) - 1.99) < 0.1
    assert model.gradient_norms_[0] <= 1e-6


@pytest.mark.parametrize("d", [1, 8, 9, 40])
def test_saddle_point_is_left_in_any_direction(d):
    way = np.random.default_rng(d).standard_normal(d)
    way *= 2 / np.linalg.norm(way)
    model = MeanShift(bandwidth=1.0, seeds=np.zeros((1, d))).fit(np.stack([way, -way]))
    assert abs(np.linalg.norm(model.cluster_centers_[0]) - 1.99) < 0.1


def test_one_row_and_duplicates_are_modes_of_their_own():
    np.testing.assert_array_equal(MeanShift().fit([[3.0, 4.0]]).cluster_centers_, [[3.0, 4.0]])
    X = np.repeat([[0.0, 0.0], [100.0, 0.0]], [3, 50], axis=0)
    model = MeanShift(bandwidth=1.0).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, [[100.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(model.labels_, np.repeat([1, 0], [3, 50]))


def test_constant_columns_change_nothing():
    X, _ = blobs()
    wide = np.column_stack([X, np.full(len(X), 0.1)])
    np.testing.assert_array_equal(MeanShift().fit(X).bandwidth_ > 0, [True, True])
    assert MeanShift().fit(wide).bandwidth_[2] == 1.0
    labels = MeanShift(bandwidth=1.5).fit(X).labels_
    np.testing.assert_array_equal(MeanShift(bandwidth=1.5).fit(wide).labels_, labels)


def test_tiny_bandwidth_makes_every_row_a_cluster():
    X, _ = blobs(100)
    model = MeanShift(bandwidth=1e-3).fit(X)
    assert len(model.cluster_centers_) == 100


# Sameness


def test_same_bits_on_any_number_of_threads():
    X = overlapping(3000)
    one, two, three = (MeanShift(bandwidth=0.5, n_jobs=k).fit(X) for k in (1, 2, 3))
    for other in (two, three):
        for name in ("cluster_centers_", "labels_", "log_density_bounds_", "gradient_norms_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_rows_does_not_matter(seed):
    X, _ = blobs()
    order = np.random.default_rng(seed).permutation(len(X))
    one, other = (MeanShift(bandwidth=1.2).fit(data) for data in (X, X[order]))
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-4)
    np.testing.assert_array_equal(one.labels_[order], other.labels_)


def test_predict_returns_the_labels_also_after_a_pickle():
    X = overlapping(500)
    for parameters in ({}, {"bin_seeding": True}, {"cluster_all": False}):
        model = fitted(X, bandwidth=0.6, **parameters)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X[::3]), model.predict(X[::3]))


def test_float32_stays_float32_and_finds_the_same():
    X, y = blobs()
    model = MeanShift(bandwidth=1.5).fit(X.astype(np.float32))
    assert model.cluster_centers_.dtype == np.float32
    assert adjusted_rand_score(y, model.labels_) == 1.0
    truth = MeanShift(bandwidth=1.5).fit(X).cluster_centers_
    np.testing.assert_allclose(model.cluster_centers_, truth, atol=1e-3)


# The metric


def test_a_matrix_is_the_metric_of_whitened_rows():
    X, _ = blobs()
    stretch = np.array([[2.0, 0.3], [0.0, 0.5]])
    covariance = 1.5**2 * stretch @ stretch.T
    plain = MeanShift(bandwidth=1.5).fit(X)
    model = MeanShift(bandwidth=covariance).fit(X @ stretch.T)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_allclose(
        model.cluster_centers_, plain.cluster_centers_ @ stretch.T, atol=1e-4
    )
    volume = np.log(np.linalg.det(stretch))
    np.testing.assert_allclose(model.log_densities_, plain.log_densities_ - volume, atol=1e-6)


def test_a_vector_gives_every_feature_its_width():
    X, _ = blobs()
    plain, model = MeanShift(bandwidth=1.5).fit(X), MeanShift(bandwidth=[1.5, 150.0])
    np.testing.assert_array_equal(model.fit(X * [1, 100]).labels_, plain.labels_)


def test_mean_shift_works_in_a_pipeline():
    X, y = blobs()
    labels = make_pipeline(StandardScaler(), MeanShift(bandwidth=0.3)).fit_predict(X)
    assert adjusted_rand_score(y, labels) == 1.0


# Seeds


def test_seeds_find_modes_and_rows_join_the_nearest():
    X, _ = blobs()
    model = MeanShift(bandwidth=1.5, seeds=[[0.5, 0.5], [7.0, 0.0]]).fit(X)
    assert len(model.cluster_centers_) == 2
    gaps = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_array_equal(model.labels_, gaps.argmin(axis=1))


def test_distant_seed_finds_a_mode():
    X, _ = blobs()
    model = MeanShift(bandwidth=0.5, seeds=[[1e4, 1e4]]).fit(X)
    assert len(model.cluster_centers_) == 1
    assert model.gradient_norms_[0] <= 1e-6


def test_bin_seeding_finds_the_modes():
    X, y = blobs()
    model = MeanShift(bandwidth=1.5, bin_seeding=True, min_bin_freq=3).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.99


def test_rows_beyond_a_bandwidth_are_orphans_on_request():
    X, _ = blobs()
    model = MeanShift(bandwidth=1.5, cluster_all=False).fit(X)
    centres = model.cluster_centers_[MeanShift(bandwidth=1.5).fit(X).labels_]
    np.testing.assert_array_equal(model.labels_ < 0, np.linalg.norm(X - centres, axis=1) > 1.5)


# The border


@parametrize_with_checks([MeanShift(), MeanShift(bin_seeding=True, n_jobs=1)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        MeanShift(bandwidth=0.6, max_iter=1).fit(overlapping())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": "scott"}, "bandwidth"),
        ({"bandwidth": [1.0, 2.0, 3.0]}, "bandwidth has shape"),
        ({"bandwidth": [[1.0, 0.0], [0.0, -1.0]]}, "not positive definite"),
        ({"seeds": [[0.0]]}, "seeds has 1 features"),
        ({"seeds": [[np.nan, 0.0]]}, "seeds contains NaN"),
        ({"bin_seeding": 1}, "bin_seeding"),
        ({"bin_seeding": True, "min_bin_freq": 1000}, "min_bin_freq=1000"),
        ({"min_bin_freq": 0}, "min_bin_freq"),
        ({"cluster_all": "yes"}, "cluster_all"),
        ({"max_iter": 0}, "max_iter"),
        ({"rtol": 1.0}, "rtol"),
        ({"tol": -1.0}, "^tol should be"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_failed_fit_raises_a_clear_error_and_changes_nothing(parameters, message):
    X, _ = blobs(60)
    model = MeanShift(bandwidth=1.5).fit(X)
    before = vars(model).copy()
    model.set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert vars(model) == before | parameters


def test_prediction_needs_a_fit():
    with pytest.raises(NotFittedError):
        MeanShift().predict([[0.0]])


def test_interruption_keeps_the_last_fit(monkeypatch):
    X, _ = blobs(60)
    model = MeanShift(bandwidth=1.5).fit(X)
    labels = model.labels_

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(KernelSums, "mean_shift_steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:30])
    assert model.labels_ is labels
