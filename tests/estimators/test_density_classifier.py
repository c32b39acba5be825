from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import DensityClassifier, KernelDensity, ManifoldParzen

DENSITIES = [
    KernelDensity(bandwidth=0.4),
    ManifoldParzen(2, n_neighbors=8, noise_variance=0.05),
    GaussianMixture(2, random_state=0),
]


def name(density):
    return type(density).__name__


@parametrize_with_checks(
    [
        DensityClassifier(KernelDensity()),
        DensityClassifier(ManifoldParzen(1, n_neighbors=3, noise_variance=0.5), priors="equal"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    keep = np.r_[0:150:2, 1:50:2]  # more of the first class
    return X[keep], y[keep], X[1::2], y[1::2]


@pytest.mark.parametrize("density", DENSITIES, ids=name)
@pytest.mark.parametrize("priors", [None, "equal", [1.0, 2.0, 5.0]])
def test_posteriors_follow_bayes_rule(density, priors, iris):
    X, y, query, _ = iris
    model = DensityClassifier(density, priors=priors).fit(X, y)
    shares = {None: np.bincount(y) / len(y), "equal": np.full(3, 1 / 3)}
    expected_priors = shares[priors] if not isinstance(priors, list) else np.array(priors) / 8
    np.testing.assert_allclose(model.priors_, expected_priors)
    joint = np.stack(
        [
            prior * np.exp(clone(density).fit(X[y == c]).score_samples(query))
            for c, prior in enumerate(expected_priors)
        ],
        axis=1,
    )
    posterior = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(query), posterior, rtol=1e-10, atol=1e-300)
    assert np.array_equal(model.predict(query), posterior.argmax(axis=1))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(query)), model.predict_proba(query))


@pytest.mark.parametrize("density", DENSITIES, ids=name)
def test_clone_and_pickle_agree_and_the_density_stays_unfitted(density, iris):
    X, y, query, truth = iris
    density = clone(density)
    before = set(vars(density))
    model = DensityClassifier(density).fit(X, y)
    assert set(vars(density)) == before  # not fitted
    assert model.estimator is density
    again = clone(model)
    with pytest.raises(NotFittedError):
        again.predict(query)
    assert np.array_equal(again.fit(X, y).predict_proba(query), model.predict_proba(query))
    assert model.score(query, truth) > 0.9
    unpickled = pickle.loads(pickle.dumps(model))
    assert np.array_equal(unpickled.predict_proba(query), model.predict_proba(query))


def test_one_gaussian_per_feature_is_naive_bayes(iris):
    X, y, query, _ = iris
    density = GaussianMixture(1, covariance_type="diag", reg_covar=0.0)
    ours = DensityClassifier(density).fit(X, y).predict_proba(query)
    peer = GaussianNB(var_smoothing=0.0).fit(X, y).predict_proba(query)
    np.testing.assert_allclose(ours, peer, rtol=1e-8, atol=1e-300)


def test_grid_search_sets_parameters_of_the_density(iris):
    X, y, _, _ = iris
    grid = {"estimator__bandwidth": [1e-3, 0.4], "priors": [None, "equal"]}
    search = GridSearchCV(DensityClassifier(KernelDensity()), grid, cv=3).fit(X, y)
    assert search.best_params_["estimator__bandwidth"] == 0.4


def test_labels_may_be_strings(iris):
    X, y, query, _ = iris
    names = np.array(["b", "a", "c"])
    ours = DensityClassifier(KernelDensity()).fit(X, names[y])
    assert ours.classes_.tolist() == ["a", "b", "c"]
    numbers = DensityClassifier(KernelDensity()).fit(X, y)
    assert np.array_equal(ours.predict(query), names[numbers.predict(query)])


def test_posteriors_are_accurate_where_all_densities_underflow():
    X, y = [[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1]
    model = DensityClassifier(KernelDensity(bandwidth=0.01)).fit(X, y)
    assert model.predict([[40.0], [-40.0]]).tolist() == [1, 0]
    assert np.isfinite(model.predict_log_proba([[40.0]])).all()


def test_posterior_is_the_prior_where_all_densities_are_zero():
    X, y = [[0.0], [0.1], [1.0], [1.1], [1.2]], [0, 0, 1, 1, 1]
    model = DensityClassifier(KernelDensity(kernel="tophat", bandwidth=0.3)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba([[9.0]]), [[0.4, 0.6]])


def test_failed_fit_raises_a_clear_error_and_sets_nothing(iris):
    X, y, _, _ = iris
    with pytest.raises(TypeError, match=r"has no score_samples. Give a density estimator"):
        DensityClassifier(GaussianNB()).fit(X, y)
    with pytest.raises(ValueError, match="one class only"):
        DensityClassifier(KernelDensity()).fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="priors should be 3 positive numbers"):
        DensityClassifier(KernelDensity(), priors=[1.0, 0.0, 1.0]).fit(X, y)
    alone = np.r_[3, y[1:]]
    model = DensityClassifier(ManifoldParzen(1, n_neighbors=3, noise_variance=0.1))
    with pytest.raises(ValueError, match="minimum of 2") as raised:
        model.fit(X, alone)
    assert raised.value.__notes__ == [
        "This was raised by the density of class np.int64(3), 1 rows."
    ]
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "n_features_in_")
