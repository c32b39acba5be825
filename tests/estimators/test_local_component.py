"""LocalComponentAnalysis: against its naive twin, and what must hold for any data."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.cluster import SpectralClustering
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import LocalComponentAnalysis
from fastmetric.learn.local_component.per_row import Kernels
from tests.twins import local_component as naive_local

pytestmark = pytest.mark.filterwarnings(
    "ignore:LocalComponentAnalysis has not converged",
    "ignore:LocalComponentAnalysis stopped",
    "ignore:No local direction is left",
)

FORMS = [
    {},
    {"nu": 0.3},
    {"covariance": "diag"},
    {"covariance": "diag", "nu": 0.1},
    {"covariance": "spherical"},
    {"covariance": "low_rank", "rank": 2},
    {"covariance": "low_rank", "rank": 1, "nu": 0.2},
    {"gaussian": True},
    {"gaussian": True, "nu": 0.1},
]


def two_clusters(n=120, D=4, seed=0):
    """Return two round clusters along one direction, under a random map."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    X[::2, 0] += 6
    return X @ rng.standard_normal((D, D))


def with_noise(n=150, seed=0):
    """Return two clusters in one direction, and three directions of pure noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    X[:, 0] = np.where(np.arange(n) % 2, -5, 5) + 0.3 * X[:, 0]
    return X @ rng.standard_normal((4, 4))


@parametrize_with_checks(
    [
        LocalComponentAnalysis(),
        LocalComponentAnalysis(gaussian=True, nu=0.1, n_jobs=1),
        LocalComponentAnalysis(batch_size=10, n_neighbors=15, max_iter=5),
        LocalComponentAnalysis(covariance="local", max_iter=5),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Against the naive twin


@pytest.mark.parametrize("parameters", FORMS, ids=str)
@pytest.mark.parametrize("make", [two_clusters, with_noise], ids=lambda make: make.__name__)
def test_iterations_match_the_naive_twin(parameters, make):
    X = make()
    fitted = LocalComponentAnalysis(max_iter=7, tol=0.0, **parameters).fit(X)
    local, B_local, B_gaussian, values = naive_local.em(X, fitted.n_iter_, **parameters)
    np.testing.assert_allclose(fitted.history_["log_likelihood"], values, rtol=1e-11)
    np.testing.assert_allclose(fitted.covariance_, local, rtol=1e-9, atol=1e-9 * local.max())
    assert fitted.n_local_ == B_local.shape[1]
    # The directions are the twin's up to a rotation: the metrics agree.
    mine = fitted.components_.T @ fitted.components_
    twins = B_local @ B_local.T
    np.testing.assert_allclose(mine, twins, rtol=1e-8, atol=1e-8 * np.abs(twins).max())
    mine = fitted.gaussian_components_.T @ fitted.gaussian_components_
    twins = B_gaussian @ B_gaussian.T
    np.testing.assert_allclose(mine, twins, rtol=1e-8, atol=1e-8 * max(1, np.abs(twins).max()))


def test_search_finds_the_gaussian_noise_direction():
    X = with_noise(300)
    plain = LocalComponentAnalysis(gaussian=True).fit(X)
    searched = LocalComponentAnalysis(gaussian="search").fit(X)
    assert searched.n_local_ == 1
    assert searched.history_["objective"][-1] > plain.history_["objective"][-1]
    assert searched.transform(X).shape == (300, 1)


@pytest.mark.parametrize("parameters", FORMS, ids=str)
def test_score_samples_is_the_density_of_the_formula(parameters):
    X = with_noise(80)
    query = with_noise(20, seed=1)
    fitted = LocalComponentAnalysis(max_iter=4, **parameters).fit(X)
    B_local, B_gaussian = fitted.components_.T, fitted.gaussian_components_.T
    gaps = (query - X.mean(axis=0)) @ B_gaussian
    logs = -naive_local.sq_distances(query @ B_local, X @ B_local) / 2
    sums = np.array([naive_local.log_sum_exp(row) for row in logs])
    log_det = np.linalg.slogdet(np.hstack([B_gaussian, B_local]))[1]
    expected = log_det - 2 * np.log(2 * np.pi) - (gaps**2).sum(axis=1) / 2 + sums - np.log(80)
    np.testing.assert_allclose(fitted.score_samples(query), expected.astype(float), rtol=1e-10)
    assert fitted.score(query) == pytest.approx(float(expected.mean()))


def test_one_covariance_per_row_is_that_of_the_naive_twin():
    X = two_clusters(40, 3)
    fitted = LocalComponentAnalysis(covariance="local", smoothing=2.0, max_iter=5, tol=0.0).fit(X)
    common = LocalComponentAnalysis(max_iter=5, tol=0.0).fit(X)
    covariances, values = naive_local.em_each(X, common.covariance_, 2.0, fitted.n_iter_)
    np.testing.assert_allclose(fitted.covariance_, covariances, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fitted.history_["log_likelihood"], values, rtol=1e-10)
    np.testing.assert_allclose(fitted.transform(X), common.transform(X))


# What must hold


@pytest.mark.parametrize("parameters", [*FORMS, {"covariance": "local"}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_iteration_never_decreases_the_objective(parameters, dtype):
    X = with_noise().astype(dtype)
    steps = LocalComponentAnalysis(max_iter=40, tol=0.0, **parameters).fit(X).history_["objective"]
    # tol = 0 ends the run at the first step that gains nothing but rounding.
    assert np.diff(steps).min() > -(1e-12 if dtype == np.float64 else 1e-5) * np.abs(steps).max()
    assert len(steps) > 4


@hypothesis_settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([{}, {"gaussian": True}]))
def test_density_is_equivariant_under_linear_maps(seed, parameters):
    rng = np.random.default_rng(seed)
    X = two_clusters(60, 3, seed)
    A, b = rng.standard_normal((3, 3)) + 3 * np.eye(3), 10 * rng.standard_normal(3)
    one = LocalComponentAnalysis(max_iter=5, tol=0.0, **parameters).fit(X)
    other = LocalComponentAnalysis(max_iter=5, tol=0.0, **parameters).fit(X @ A.T + b)
    moved = one.history_["log_likelihood"] - np.linalg.slogdet(A)[1]
    tolerance = 1e-13 * np.linalg.cond(A) ** 2
    np.testing.assert_allclose(other.history_["log_likelihood"], moved, rtol=1e-10 + tolerance)
    if one.n_local_ == other.n_local_:
        signs = np.sign((one.transform(X) * other.transform(X @ A.T + b)).sum(axis=0))
        np.testing.assert_allclose(
            one.transform(X), signs * other.transform(X @ A.T + b), atol=1e-6 + 100 * tolerance
        )


@pytest.mark.parametrize("D", [3, 20])  # pairs by differences, and by products
def test_one_batch_of_all_rows_is_batch_em(D):
    X = two_clusters(100, D)
    common = dict(max_iter=4, tol=0.0, nu=0.1)
    whole = LocalComponentAnalysis(**common).fit(X)
    batch = LocalComponentAnalysis(batch_size=100, n_neighbors=100, discount=0.0, **common).fit(X)
    np.testing.assert_allclose(batch.covariance_, whole.covariance_, rtol=1e-10, atol=1e-12)
    values = whole.history_["log_likelihood"]
    np.testing.assert_allclose(batch.history_["log_likelihood"], values[:-1], rtol=1e-12)
    assert batch.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-12)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"gaussian": True}, {"batch_size": 300, "n_neighbors": 700}, {"nu": "auto"}],
    ids=str,
)
@pytest.mark.parametrize("D", [3, 20])
def test_the_same_bits_at_any_number_of_threads(parameters, D):
    X = two_clusters(1500, D)
    runs = [
        LocalComponentAnalysis(n_jobs=n_jobs, random_state=0, max_iter=2, **parameters).fit(X)
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(runs[0].covariance_, runs[1].covariance_)
    np.testing.assert_array_equal(runs[0].score_samples(X[:50]), runs[1].score_samples(X[:50]))
    assert runs[0].log_likelihood_ == runs[1].log_likelihood_


@pytest.mark.parametrize("D", [4, 20])
def test_float32_agrees_with_float64_up_to_rounding(D):
    X = two_clusters(200, D)
    wide = LocalComponentAnalysis(nu=0.05, max_iter=10, tol=0.0).fit(X)
    narrow = LocalComponentAnalysis(nu=0.05, max_iter=10, tol=0.0).fit(X.astype(np.float32))
    steps = len(narrow.history_["objective"])
    np.testing.assert_allclose(
        narrow.history_["objective"], wide.history_["objective"][:steps], rtol=2e-5
    )
    for method in ("transform", "score_samples", "sample"):
        argument = 3 if method == "sample" else X.astype(np.float32)
        assert getattr(narrow, method)(argument).dtype == np.float32


@pytest.mark.parametrize("gap", [1e5, 1e6])
def test_distant_clusters_keep_their_digits(gap):
    near = two_clusters(80, 3)
    one = LocalComponentAnalysis(tol=1e-9, nu=0.1).fit(near)
    two = LocalComponentAnalysis(tol=1e-9, nu=0.1).fit(np.concatenate([near, near + gap]))
    # The same kernel serves both; half of the kernels are nowhere near.
    np.testing.assert_allclose(two.covariance_, one.covariance_, atol=1e-3)
    assert two.log_likelihood_ - one.log_likelihood_ == pytest.approx(np.log(79 / 159), abs=1e-6)


@hypothesis_settings(max_examples=60)
@given(
    st.integers(2, 40),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1e-8, 1.0, 1e8]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from(["full", "diag", "spherical"]),
    st.booleans(),
)
def test_difficult_data_give_a_density_or_a_clear_error(
    n, D, seed, rounded, constant, scale, nu, covariance, gaussian
):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    X = np.round(X) if rounded else X
    if constant:
        X[:, 0] = 3.0
    X *= scale
    gaussian = gaussian and covariance == "full"
    estimator = LocalComponentAnalysis(
        covariance=covariance, gaussian=gaussian, nu=nu * scale**2, max_iter=10
    )
    ranges = np.ptp(X, axis=0)
    flat = {
        "full": np.linalg.matrix_rank((X - X.mean(axis=0)) / scale, tol=1e-9) < D,
        "diag": (ranges == 0).any(),
        "spherical": (ranges == 0).all(),
    }
    if nu == 0 and flat[covariance]:  # no density: every direction has to vary
        with pytest.raises(ValueError, match="nu > 0"):
            estimator.fit(X)
        assert not hasattr(estimator, "components_")
        return
    estimator.fit(X)
    assert np.isfinite(estimator.covariance_).all()
    assert np.isfinite(estimator.log_likelihood_)
    assert np.isfinite(estimator.score_samples(X)).all()
    assert np.isfinite(estimator.transform(X)).all()
    assert np.isfinite(estimator.sample(5, random_state=0)).all()


def test_rows_with_equal_values_warn_that_there_is_no_maximum():
    X = np.round(two_clusters(60, 2))
    with pytest.warns(ConvergenceWarning, match="no maximum"):
        LocalComponentAnalysis(covariance="diag", max_iter=2000, tol=0.0).fit(np.repeat(X, 2, 0))


def test_one_covariance_per_row_warns_of_a_collapse_too():
    X = np.repeat(np.round(two_clusters(40, 2)), 3, axis=0)
    with pytest.warns(ConvergenceWarning, match="no maximum"):
        LocalComponentAnalysis(covariance="local", max_iter=300, tol=0.0).fit(X)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("parameters", [{}, {"covariance": "low_rank", "rank": 1}], ids=str)
def test_values_whose_squares_overflow_are_refused(parameters):
    X = two_clusters(40, 2)
    with pytest.raises(ValueError, match="overflow"):
        LocalComponentAnalysis(**parameters).fit(1e200 * X)
    fitted = LocalComponentAnalysis(max_iter=2, **parameters).fit(X.astype(np.float32))
    with pytest.raises(ValueError, match="overflow in float32"):
        fitted.score_samples(np.full((1, 2), 1e25, np.float32))
    for method in (fitted.score_samples, fitted.partial_fit):
        with pytest.raises(ValueError, match="out of the range of float32"):
            method(np.full((2, 2), 1e60))


def test_single_feature_low_rank_equals_full_covariance():
    X = two_clusters(40, 1)
    found = LocalComponentAnalysis(covariance="low_rank", rank=1).fit(X).covariance_
    np.testing.assert_array_equal(found, LocalComponentAnalysis().fit(X).covariance_)


@pytest.mark.parametrize("max_iter", [1, 5, 60])
def test_search_respects_max_iter(max_iter):
    fitted = LocalComponentAnalysis(gaussian="search", max_iter=max_iter, tol=0.0).fit(with_noise())
    assert fitted.n_iter_ <= max_iter
    assert np.all(np.diff(fitted.history_["seconds"]) >= 0)


# As a density, a transformer, on-line


@pytest.mark.parametrize("parameters", [{}, {"gaussian": "search"}, {"covariance": "local"}])
def test_samples_have_the_moments_of_the_density(parameters):
    X, n = with_noise(100), 40_000
    fitted = LocalComponentAnalysis(max_iter=5, **parameters).fit(X)
    drawn = fitted.sample(n, random_state=0)
    B = np.vstack([fitted.components_, fitted.gaussian_components_])
    W, rows = (drawn - fitted.mean_) @ B.T, (X - X.mean(axis=0)) @ B.T
    q = fitted.n_local_
    expected = np.eye(4)  # of the kernel, and of the Gaussian part
    expected[:q, :q] += rows[:, :q].T @ rows[:, :q] / 100
    if "covariance" in parameters:
        expected -= np.eye(4)
        expected += B @ fitted.covariance_.mean(axis=0) @ B.T
    size = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(W.mean(axis=0) / size, 0, atol=5 / np.sqrt(n))
    found = np.cov(W.T) / np.outer(size, size)
    np.testing.assert_allclose(found, expected / np.outer(size, size), atol=10 / np.sqrt(n))


def test_density_in_one_dimension_integrates_to_one():
    X = with_noise(100)[:, :1]
    fitted = LocalComponentAnalysis().fit(X)
    grid = np.linspace(X.min() - 30, X.max() + 30, 20_001)
    volume = np.exp(fitted.score_samples(grid[:, None])).sum() * (grid[1] - grid[0])
    assert volume == pytest.approx(1, abs=1e-6)


def test_spectral_clustering_separates_circles_amid_noise():
    rng = np.random.default_rng(0)
    y, angle = np.arange(300) % 2, rng.uniform(0, 2 * np.pi, 300)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * (1 + y)[:, None]
    X = np.hstack([X + 0.1 * rng.standard_normal((300, 2)), rng.standard_normal((300, 1))])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    clusters = SpectralClustering(2, gamma=0.5, random_state=0)
    found = make_pipeline(LocalComponentAnalysis(), clusters).fit_predict(X)
    plain = clusters.fit_predict(X)
    right, plainly = (max((c == y).mean(), (c != y).mean()) for c in (found, plain))
    assert right > 0.98 > 0.8 > plainly


def test_mini_batches_approach_batch_em():
    X, new = np.split(with_noise(2000), [1500])
    whole = LocalComponentAnalysis().fit(X)
    parts = LocalComponentAnalysis(batch_size=100, random_state=0).fit(X)
    assert parts.score(new) == pytest.approx(whole.score(new), abs=0.02)
    # Neighbours are farther away in a sample of them, and the kernel is wider.
    fewer = LocalComponentAnalysis(batch_size=100, n_neighbors=500, random_state=0).fit(X)
    assert np.linalg.det(fewer.covariance_) > np.linalg.det(whole.covariance_)
    assert fewer.score(new) == pytest.approx(whole.score(new), abs=0.5)


def test_partial_fit_approaches_fit_with_as_many_neighbours():
    X, new = np.split(with_noise(3500), [3000])
    few = LocalComponentAnalysis().fit(X[:500])
    online = LocalComponentAnalysis(n_neighbors=500, batch_size=100, discount=0.1, random_state=0)
    for first in range(0, 3000, 100):
        online.partial_fit(X[first : first + 100])
    assert online._rows.shape == (500, 4)
    np.testing.assert_allclose(online.mean_, X.mean(axis=0), atol=1e-10)
    assert online.score(new) == pytest.approx(few.score(new), abs=0.1)
    before = online.score(new)
    again = pickle.loads(pickle.dumps(online)).partial_fit(X[:100])
    assert again.score(new) == pytest.approx(before, abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_partial_fit_starts_with_all_directions_local(seed):
    X = with_noise(300, seed)
    online = LocalComponentAnalysis(gaussian=True, batch_size=300, discount=0.0, nu=1e-3)
    batch = LocalComponentAnalysis(gaussian=True, max_iter=1, nu=1e-3).fit(X)
    online.partial_fit(X)  # one batch of all rows: an iteration
    assert online.n_local_ == batch.n_local_
    np.testing.assert_allclose(online.covariance_, batch.covariance_, rtol=1e-9)


def test_partial_fit_sample_is_drawn_from_all_rows():
    X = np.arange(4000.0)[:, None] + np.zeros(2)
    X[:, 1] = np.random.default_rng(0).standard_normal(4000)
    online = LocalComponentAnalysis(n_neighbors=400, nu=1.0, random_state=np.random.RandomState(0))
    for part in np.array_split(X, 40):
        online.partial_fit(part)
    kept = online._remembered().sample[:, 0]
    assert len(np.unique(kept)) == 400
    # A random sample of 400 has a mean within 4 standard errors, 231 = 4000 / sqrt(12 * 400) * 4.
    assert abs(kept.mean() - 2000) < 231


def test_partial_fit_sample_ignores_positions_within_chunks():
    online = LocalComponentAnalysis(n_neighbors=400, nu=1.0, random_state=0)
    part = np.column_stack([np.arange(100.0), np.random.default_rng(0).standard_normal(100)])
    for _ in range(40):
        online.partial_fit(part)
    # Of 100 places 400 random rows of all 4000 miss few: 0.9^40 of them.
    assert len(np.unique(online._remembered().sample[:, 0])) > 90


def test_growing_sample_stays_a_sample_of_all_rows():
    X = np.column_stack([np.arange(4000.0), np.random.default_rng(0).standard_normal(4000)])
    online = LocalComponentAnalysis(n_neighbors=100, nu=1.0, random_state=0)
    online.partial_fit(X[:2000]).set_params(n_neighbors=1000).partial_fit(X[2000:])
    kept = online._remembered().sample[:, 0]
    assert np.mean(kept < 2000) == pytest.approx(0.5, abs=0.25)  # of 100: 5 deviations


def test_penalty_is_chosen_on_held_out_rows():
    rng = np.random.default_rng(0)
    X, new = (rng.standard_normal((n, 12)) * np.r_[np.ones(3), np.full(9, 0.05)] for n in (60, 500))
    chosen = LocalComponentAnalysis(nu="auto", random_state=0).fit(X)
    assert chosen.score(new) > LocalComponentAnalysis(nu=1e-6).fit(X).score(new)
    assert chosen.score(new) > LocalComponentAnalysis(nu=1.0).fit(X).score(new)


# The border


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"covariance": "round"}, "covariance="),
        ({"covariance": "low_rank"}, "rank should be"),
        ({"covariance": "low_rank", "rank": 4}, "rank should be"),
        ({"rank": 2}, "goes with covariance='low_rank'"),
        ({"gaussian": "yes"}, "gaussian="),
        ({"gaussian": True, "covariance": "diag"}, "goes with covariance='full'"),
        ({"nu": -1.0}, "nu should be"),
        ({"nu": (1.0, 2.0, 3.0)}, "nu should be"),
        ({"nu": "best"}, "nu="),
        ({"smoothing": 0.0}, "smoothing should be"),
        ({"batch_size": 0}, "batch_size should be"),
        ({"n_neighbors": 1}, "n_neighbors should be"),
        ({"discount": 1.0}, "discount should be"),
        ({"gaussian": "search", "batch_size": 10}, "learns from all rows"),
        ({"validation_fraction": 1.0}, "validation_fraction should be"),
        ({"max_iter": 0}, "max_iter should be"),
        ({"tol": np.nan}, "tol should be"),
        ({"n_jobs": 0}, "n_jobs should be"),
    ],
    ids=str,
)
def test_a_bad_parameter_raises_and_changes_nothing(parameters, message):
    X = two_clusters(30)
    estimator = LocalComponentAnalysis(max_iter=2).fit(X)
    before = estimator.covariance_
    with pytest.raises(ValueError, match=message):
        estimator.set_params(**parameters).fit(X)
    assert estimator.covariance_ is before


def test_covariances_that_would_fill_the_memory_are_refused():
    X = np.broadcast_to(np.zeros(500), (3000, 500))
    with pytest.raises(ValueError, match=r"6\.0 GB"):
        LocalComponentAnalysis(covariance="local").fit(X)


@pytest.mark.parametrize("name", ["covariance", "gaussian", "nu"])
def test_partial_fit_is_absent_for_options_that_need_all_rows(name):
    value = {"covariance": "local", "gaussian": "search", "nu": "auto"}[name]
    estimator = LocalComponentAnalysis(**{name: value})
    assert not hasattr(estimator, "partial_fit")


def test_read_only_and_object_arrays_are_fine():
    X = two_clusters(40)
    expected = LocalComponentAnalysis(max_iter=2).fit(X).covariance_
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (frozen, X.astype(object), np.asfortranarray(X)):
        found = LocalComponentAnalysis(max_iter=2).fit(same).covariance_
        np.testing.assert_array_equal(found, expected)


def test_feature_names_are_kept():
    fitted = LocalComponentAnalysis(gaussian="search").fit(with_noise())
    assert list(fitted.get_feature_names_out()) == ["localcomponentanalysis0"]


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_keeps_the_last_iteration():
    X = two_clusters(3000, 6)
    estimator = LocalComponentAnalysis(max_iter=10_000, tol=0.0)
    LocalComponentAnalysis(max_iter=1).fit(X)  # compiled
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X)
        assert time.perf_counter() - began < 3
    finally:
        signal.signal(signal.SIGINT, before)
    assert estimator.n_iter_ >= 1
    assert np.isfinite(estimator.score(X[:10]))


def test_ctrl_c_before_row_covariances_keeps_the_shared_one(monkeypatch):
    def press(*arguments):
        raise KeyboardInterrupt

    X = two_clusters(60)
    common = LocalComponentAnalysis().fit(X)
    monkeypatch.setattr(Kernels, "improved", press)
    estimator = LocalComponentAnalysis(covariance="local")
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    np.testing.assert_array_equal(estimator.covariance_, common.covariance_)
    assert estimator.log_likelihood_ == common.log_likelihood_
    np.testing.assert_array_equal(estimator.score_samples(X), common.score_samples(X))
