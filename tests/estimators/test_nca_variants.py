"""The estimator's variants: scikit-learn's checks, posteriors, partial_fit, pickles, bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import NCA
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.rows import ArrayRows
from tests.twins import nca as naive

pytestmark = pytest.mark.filterwarnings(
    "ignore:NCA has not converged", "ignore:The number of unique classes"
)

QUICK = dict(max_iter=3, random_state=0, n_jobs=1)
CHECKED = [
    NCA(kernel="biweight", background=True, **QUICK),
    NCA(background="learn", priors="equal", **QUICK),
    NCA(solver="stochastic", batch_size=10, **QUICK),
    NCA(solver="minibatch", batches="projection", batch_size=10, **QUICK),
    NCA(solver="minibatch", batches="farthest", kernel="biweight", **QUICK),
    NCA(early_stopping=True, annealing=True, **QUICK),
    NCA(subsample=0.8, method="tree", **QUICK),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    # No ties: a row in two classes would hide errors.
    X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)
    return X[10:], np.array(["setosa", "versicolor", "virginica"])[y[10:]]


PRIORS = {"classic": None, "equal": "equal", "array": np.array([5.0, 1.0, 2.0])}
BACKGROUNDS = {"none": False, "default": True, "share": 0.3, "learnt": "learn"}


@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
@pytest.mark.parametrize("priors", PRIORS.values(), ids=PRIORS.keys())
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
def test_posteriors_are_those_of_the_densities_that_were_fitted(kernel, priors, background, iris):
    X, y = iris
    nca = NCA(2, kernel=kernel, priors=priors, background=background, max_iter=5).fit(X, y)
    query = np.concatenate([X[::9] + 0.05, X[:3] + 3.0])
    twin = naive.ClassDensities(
        nca.components_,
        X,
        y,
        kernel=kernel,
        priors=priors,
        background=background is not False,
        beta=nca.background_,
    )
    expected = twin.posterior(query).astype(float)
    for method in ("exact", "tree", "auto"):
        P = nca.set_params(method=method).predict_proba(query)
        np.testing.assert_allclose(P, expected, atol=1e-9)
        assert np.array_equal(nca.predict(query), nca.classes_[expected.argmax(axis=1)])


@settings(max_examples=60)
@given(st.data(), st.integers(2, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_posteriors_of_any_classes_equal_the_twins(data, n, d, seed):
    rng = np.random.default_rng(seed)
    n_classes = data.draw(st.integers(2, min(n, 5)))
    y = np.sort(np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]))
    Z, query = rng.standard_normal((n, d)), rng.standard_normal((20, d)) * 1.5
    if data.draw(st.booleans()):
        Z, query = np.round(Z), np.round(query)
    Z = Z - Z.mean(axis=0)
    kernel = data.draw(st.sampled_from(["gaussian", "biweight"]))
    priors = data.draw(st.sampled_from([None, rng.uniform(0.1, 1, n_classes)]))
    # A covariance that is nearly singular loses digits: classes of few rows have none of theirs.
    background = data.draw(st.booleans()) and np.bincount(y).max() <= d
    offsets = np.concatenate([[0], np.cumsum(np.bincount(y))])
    twin = naive.ClassDensities(
        np.eye(d), Z, y, kernel=kernel, priors=priors, background=background
    )
    g = np.add(*twin.terms(query))
    expected = twin.posterior(query).astype(float)
    # At the edge of a compact kernel's support a sum is all rounding; the twin's underflow.
    sure = g.sum(axis=1) > 1e-9
    if kernel == "biweight" and not background:
        sure |= g.sum(axis=1) == 0
    for method in ("exact", "tree"):
        posterior = Posterior(Z, offsets, Mixture(kernel, priors, background), method=method)
        (_, P), *rest = posterior(query)
        assert not rest
        np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
        np.testing.assert_allclose(P[sure], expected[sure], atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "tree"])
@pytest.mark.parametrize("priors", PRIORS.values(), ids=PRIORS.keys())
def test_posterior_is_the_prior_where_all_densities_are_zero(priors, method, iris):
    X, y = iris
    nca = NCA(2, kernel="biweight", priors=priors, method=method, max_iter=2).fit(X, y)
    given = {None: np.array([40, 50, 50]), "equal": np.ones(3)}.get(
        priors if priors is None or isinstance(priors, str) else 0, priors
    )
    P = nca.predict_proba(X[:4] + 1e6)
    np.testing.assert_allclose(P, np.tile(given / np.sum(given), (4, 1)), rtol=1e-14)


def test_a_background_decides_where_kernels_do_not_reach(iris):
    X, y = iris
    nca = NCA(2, kernel="biweight", background=True, max_iter=2).fit(X, y)
    P = nca.predict_proba(X[:4] + 100.0)
    assert np.all(np.isfinite(P))
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert not np.allclose(P, [40 / 140, 50 / 140, 50 / 140])


@pytest.mark.parametrize("variant", [{}, dict(kernel="biweight", background="learn")])
@pytest.mark.parametrize("solver", ["lbfgs", "stochastic", "minibatch"])
def test_float32_stays_float32(solver, variant, iris):
    X, y = iris
    fits = [
        NCA(2, init="pca", solver=solver, max_iter=5, random_state=0, **variant).fit(some, y)
        for some in (X.astype(np.float32), X)
    ]
    low = fits[0]
    assert low.components_.dtype == low.transform(X.astype(np.float32)).dtype == np.float32
    assert low.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert low.objective_ == pytest.approx(fits[1].objective_, abs=0.02)


DIFFICULT = {
    "duplicates": np.repeat(np.random.default_rng(0).standard_normal((10, 3)), 4, axis=0),
    "all equal": np.full((40, 3), 0.1),
    "constant column": np.c_[np.random.default_rng(1).standard_normal((40, 2)), np.full(40, 7.0)],
    "far clusters": np.random.default_rng(2).standard_normal((40, 3))
    + 1e6 * (np.arange(40) % 2)[:, None],
    "tiny": np.random.default_rng(3).standard_normal((40, 3)) * 1e-8,
    "huge": np.random.default_rng(4).standard_normal((40, 3)) * 1e8,
}
VARIANTS = {
    "compact": dict(kernel="biweight"),
    "compact, background": dict(kernel="biweight", background=True),
    "learnt background": dict(background="learn", priors="equal"),
    "stochastic": dict(solver="stochastic", batch_size=10),
    "minibatch": dict(solver="minibatch", batches="farthest", batch_size=10),
    "early stopping": dict(early_stopping=True),
    "annealing": dict(annealing=True, init="pca"),
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("X", DIFFICULT.values(), ids=DIFFICULT.keys())
def test_difficult_data_work(X, variant):
    y = np.arange(40) % 4
    y[0] = 9  # a class of one
    nca = NCA(2, max_iter=3, random_state=0, **variant).fit(X, y)
    assert np.all(np.isfinite(nca.components_))
    assert 0 <= nca.objective_ <= 1
    np.testing.assert_allclose(nca.predict_proba(X).sum(axis=1), 1)


# On-line learning


def _fitted(nca):
    """Return the fitted attributes, as bytes."""
    return pickle.dumps({k: v for k, v in vars(nca).items() if k.endswith("_")})


@pytest.mark.parametrize("variant", [{}, dict(kernel="biweight", background=True)])
def test_partial_fit_learns_from_chunks(variant, iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(len(X))
    nca = NCA(2, init="pca", batch_size=10, **variant)
    for chunk in np.array_split(order, 7):
        assert nca.partial_fit(X[chunk], y[chunk], classes=np.unique(y)) is nca
    start = NCA(2, init="pca", tol=1e9, **variant).fit(X, y)
    both = [
        Objective(ArrayRows(X), np.unique(y, return_inverse=True)[1], mixture=Mixture(nca.kernel))
        .evaluate(fit.components_)
        .value
        for fit in (nca, start)
    ]
    assert both[0] > both[1]
    assert nca.score(X, y) > 0.9
    twin = naive.ClassDensities(
        nca.components_, X, y, kernel=nca.kernel, background="background" in variant
    )
    np.testing.assert_allclose(
        nca.predict_proba(X[:9]), twin.posterior(X[:9]).astype(float), atol=1e-9
    )


@pytest.mark.parametrize("background", [True, 0.3, "learn"])
def test_late_class_gets_a_background_share_by_its_size(background, iris):
    X, y = iris
    nca = NCA(2, init="pca", background=background, random_state=0)
    first = y != "virginica"
    nca.partial_fit(X[first], y[first], classes=np.unique(y)).partial_fit(X[~first], y[~first])
    expected = 0.3 if background == 0.3 else 1 / (np.array([40, 50, 50]) + 1)
    np.testing.assert_allclose(nca.background_, np.broadcast_to(expected, 3))
    assert nca.score(X, y) > 0.8


def test_a_learnt_share_stays_what_it_is(iris):
    X, y = iris
    nca = NCA(2, background="learn", random_state=0).fit(X[::2], y[::2])
    before = nca.background_
    assert np.array_equal(nca.partial_fit(X[1::2], y[1::2]).background_, before)


def test_partial_fit_continues_after_fit(iris):
    X, y = iris
    nca = NCA(2, max_iter=3).fit(X[::2], y[::2])
    before = nca.components_
    nca.partial_fit(X[1::2], y[1::2])
    assert not np.array_equal(nca.components_, before)
    everything = np.concatenate([X[::2], X[1::2]]), np.concatenate([y[::2], y[1::2]])
    twin = naive.ClassDensities(nca.components_, *everything)
    np.testing.assert_allclose(
        nca.predict_proba(X[:9]), twin.posterior(X[:9]).astype(float), atol=1e-9
    )
    assert nca.score(X, y) > 0.9


def test_a_class_without_rows_yet_is_never_predicted(iris):
    X, y = iris
    some = y != "virginica"
    nca = NCA(2, priors="equal").partial_fit(X[some], y[some], classes=np.unique(y))
    P = nca.predict_proba(X)
    assert P.shape == (len(X), 3)
    assert not P[:, 2].any()


def test_an_unknown_class_is_named_and_changes_nothing(iris):
    X, y = iris
    some = y != "virginica"
    nca = NCA(2, init="pca").partial_fit(X[some], y[some])
    before = _fitted(nca)
    with pytest.raises(ValueError, match=r"virginica.*Give all classes"):
        nca.partial_fit(X, y)
    assert _fitted(nca) == before
    with pytest.raises(ValueError, match=r"virginica.*Give all classes"):
        NCA(2).partial_fit(X, y, classes=["setosa", "versicolor"])


def test_classes_cannot_change_later(iris):
    X, y = iris
    nca = NCA(2, init="pca").partial_fit(X, y)
    before = _fitted(nca)
    with pytest.raises(ValueError, match=r"classes=\['setosa'\] are not those"):
        nca.partial_fit(X, y, classes=["setosa"])
    assert _fitted(nca) == before
    nca.partial_fit(X, y, classes=np.unique(y)[::-1])


def test_one_class_is_too_few_to_begin_with(iris):
    X, y = iris
    for classes in (None, np.unique(y)):
        nca = NCA(2)
        with pytest.raises(ValueError, match="one class only"):
            nca.partial_fit(X[:10], y[:10], classes=classes)
        assert vars(nca) == vars(NCA(2))


def test_new_rows_have_the_features_of_the_first(iris):
    X, y = iris
    nca = NCA(2, init="pca").partial_fit(X, y)
    before = _fitted(nca)
    with pytest.raises(ValueError, match="4 features"):
        nca.partial_fit(X[:, :3], y)
    assert _fitted(nca) == before


def test_interrupted_partial_fit_changes_nothing(iris, monkeypatch):
    X, y = iris
    fits = [NCA(2, init="pca", batch_size=20).partial_fit(X[::2], y[::2]) for _ in range(2)]
    calls, evaluate = [], Objective.evaluate

    def interrupted(self, *args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fits[0].partial_fit(X[1::2], y[1::2])
    first, second = (nca.partial_fit(X[1::2], y[1::2]).components_ for nca in fits)
    assert np.array_equal(first, second)


def test_fit_discards_the_state_of_partial_fit(iris):
    X, y = iris
    nca = NCA(2, max_iter=3).partial_fit(X[::2], y[::2]).fit(X, y)
    assert np.array_equal(nca.components_, NCA(2, max_iter=3).fit(X, y).components_)


# Pickles


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_pickle_predicts_the_same_bits(variant, iris):
    X, y = iris
    nca = NCA(2, max_iter=2, random_state=0, **variant).fit(X, y)
    again = pickle.loads(pickle.dumps(nca))
    assert np.array_equal(again.predict_proba(X), nca.predict_proba(X))


def test_pickle_of_a_fit_omits_its_rows_and_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 200)), np.arange(500) % 3
    nca = NCA(2, max_iter=1).fit(X, y)
    dumped = pickle.dumps(nca)
    assert len(dumped) < X.nbytes / 10
    again = pickle.loads(dumped)
    before = _fitted(again)
    with pytest.raises(ValueError, match="not part of its pickle"):
        again.partial_fit(X, y)
    assert _fitted(again) == before
    assert np.array_equal(again.fit(X, y).components_, nca.components_)


def test_partial_fit_continues_after_a_pickle(iris):
    X, y = iris
    nca = NCA(2, init="pca", batch_size=20).partial_fit(X[::2], y[::2])
    again = pickle.loads(pickle.dumps(nca))
    for one in (nca, again):
        one.partial_fit(X[1::2], y[1::2])
    assert np.array_equal(again.components_, nca.components_)


# Bad input


BAD = {
    "background": ["yes", -0.1, 0.0, 1.0, 2, np.nan, None, [0.5, 0.5]],
    "priors": ["even", [1.0, 2.0], [0.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [np.nan, 1.0, 1.0], 3.0],
    "solver": ["sgd", None, 1],
    "batch_size": [1, 0, -5, 2.5, "large", None, True],
    "batches": ["kmeans", None],
    "subsample": [0, 1, 141, 0.0, -0.5, 1.5, np.nan, "half", True],
    "annealing": ["yes", None, 1],
    "early_stopping": ["yes", None, 1],
    "validation_fraction": [0.0, 1.0, -0.1, np.nan, "0.1", None, True],
    "kernel": ["cosine", None],
    "method": ["forest", None],
    "rtol": [-0.1, 1.0, np.nan, "much", None],
    "n_jobs": [0, 1.5, "all"],
    "max_iter": [0, 2.5, None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_bad_parameter_is_named_and_leaves_the_fit_alone(name, value, iris, small_fit):
    nca = pickle.loads(small_fit).set_params(**{name: value})
    before = _fitted(nca)
    for learn in (nca.fit, NCA(2, **{name: value}).fit):
        with pytest.raises(ValueError, match=name):
            learn(*iris)
    assert _fitted(nca) == before


@pytest.fixture(scope="module")
def small_fit(iris):
    return pickle.dumps(NCA(2, max_iter=2).fit(*iris))


@pytest.mark.parametrize("solver", ["stochastic", "minibatch"])
def test_verbose_prints_kernel_method_and_solver(solver, iris, capsys):
    nca = NCA(2, solver=solver, kernel="biweight", max_iter=2, verbose=1).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + nca.n_iter_
    assert f"biweight, auto, {solver} by batches of 50" in lines[0]


def test_predictions_use_the_kernel_of_the_fit(iris):
    X, y = iris
    nca = NCA(2, kernel="biweight", max_iter=3).fit(X, y)
    before = nca.predict_proba(X)
    assert np.array_equal(nca.set_params(kernel="gaussian").predict_proba(X), before)
