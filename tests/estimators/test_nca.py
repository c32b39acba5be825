"""The estimator: scikit-learn's checks, starts, stopping, predicting, bad and difficult input."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import NCA, nca_value_and_grad
from tests.twins import pairs as naive

pytestmark = pytest.mark.filterwarnings(
    "ignore:NCA has not converged", "ignore:The number of unique classes"
)


@parametrize_with_checks([NCA(), NCA(init="rca", alpha=0.01, n_jobs=1)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(iris):
    return NCA(n_components=2).fit(*iris)


def test_fit_improves_on_its_start_and_records_it(iris, fitted):
    history = fitted.history_["objective"]
    assert history[-1] > history[0]
    assert fitted.objective_ == history[-1]
    value, _ = nca_value_and_grad(fitted.components_, *iris)
    assert value / len(iris[0]) == pytest.approx(fitted.objective_, rel=1e-12)
    assert {len(figures) for figures in fitted.history_.values()} == {fitted.n_iter_ + 1}
    assert np.all(np.diff(fitted.history_["seconds"]) >= 0)
    assert np.all(np.diff(history) >= 0)


def test_fit_matches_scikit_learn_from_the_same_start():
    X, y = load_digits(return_X_y=True)
    X = X[:500] / 16.0
    start = np.random.default_rng(0).standard_normal((2, 64)) / 4
    ours = NCA(2, init=start, max_iter=20, tol=1e-12).fit(X, y[:500])
    peer = NeighborhoodComponentsAnalysis(2, init=start, max_iter=20, tol=1e-12).fit(X, y[:500])
    peer_value = nca_value_and_grad(peer.components_, X, y[:500])[0] / 500
    assert ours.objective_ == pytest.approx(peer_value, rel=1e-6)


def test_transform_is_the_product_with_components(iris, fitted):
    np.testing.assert_allclose(fitted.transform(iris[0]), iris[0] @ fitted.components_.T)


def test_transform_keeps_names_and_gives_pandas_on_request(iris):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    nca = NCA(2, max_iter=3).fit(X, iris[1]).set_output(transform="pandas")
    Z = nca.transform(X)
    assert list(Z.columns) == ["nca0", "nca1"]
    assert list(nca.feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        nca.transform(X[["d", "c", "b", "a"]])


def test_posterior_is_each_class_share_of_the_kernel_sum(iris, fitted):
    query = iris[0][::7] + 0.1
    A = fitted.components_
    logs = naive.log_class_sums(query @ A.T, iris[0] @ A.T, iris[1], fitted.classes_)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(query), shares.astype(float), atol=1e-10)
    assert np.array_equal(fitted.predict(query), fitted.classes_[shares.argmax(axis=1)])


def test_posterior_is_finite_for_distant_queries(iris, fitted):
    P = fitted.predict_proba(iris[0][:5] + 1e4)
    np.testing.assert_allclose(P.sum(axis=1), 1)


def test_nca_generalises_to_new_rows():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), NCA(2, alpha=0.05))
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.93
    neighbours = make_pipeline(StandardScaler(), NCA(2, alpha=0.05), KNeighborsClassifier(3))
    assert neighbours.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.93


def test_nca_works_in_a_grid_search(iris):
    search = GridSearchCV(NCA(2, max_iter=5), {"alpha": [0.0, 0.1], "init": ["pca", "rca"]}, cv=2)
    assert search.fit(*iris).best_score_ > 0.9


@pytest.mark.parametrize("init", ["auto", "rca", "lda", "pca", "identity", "random"])
def test_every_start_is_a_map_of_full_rank(init, iris):
    starts = []
    nca = NCA(2, init=init, max_iter=1, random_state=0, callback=lambda A, n: starts.append(A))
    nca.fit(*iris)
    assert np.linalg.matrix_rank(nca.components_) == 2
    assert nca.n_iter_ == 1
    assert len(starts) == 1


def _start(init, X, y, d, **parameters):
    """Return the start of a fit: with tol huge, L-BFGS returns it unchanged."""
    nca = NCA(d, init=init, tol=1e9, **parameters).fit(X, y)
    assert nca.n_iter_ == 0
    return nca.components_


def test_pca_start_spans_the_leading_directions(iris):
    A = _start("pca", *iris, 2)
    _, _, V = np.linalg.svd(iris[0] - iris[0].mean(0))
    np.testing.assert_allclose(A @ A.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(A.T @ A, V[:2].T @ V[:2], atol=1e-10)


def test_lda_start_has_scikit_learns_directions(iris):
    A = _start("lda", *iris, 2)
    peer = LinearDiscriminantAnalysis().fit(*iris).scalings_.T[:2]
    directions = [np.abs(M) / np.linalg.norm(M, axis=1, keepdims=True) for M in (A, peer)]
    np.testing.assert_allclose(*directions, rtol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
def test_rca_start_whitens_classes_with_the_penalty_as_variance(alpha, iris):
    X, y = iris
    A = _start("rca", X, y, 4, alpha=alpha)
    within = sum(np.cov(X[y == c].T, bias=True) * np.sum(y == c) for c in np.unique(y)) / len(X)
    priced = within + alpha / len(X) * np.eye(4)
    np.testing.assert_allclose(A @ priced @ A.T, np.eye(4), atol=1e-10)


def test_a_penalised_start_leaves_constant_features_alone(iris):
    X, y = iris
    A = _start("rca", np.c_[X, np.ones(len(X))], y, 4, alpha=1.0)
    np.testing.assert_allclose(A[:, 4], 0, atol=1e-12)
    np.testing.assert_allclose(A[:, :4], _start("rca", X, y, 4, alpha=1.0), atol=1e-10)


def test_starts_work_with_more_features_than_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 50)), np.arange(20) % 3
    for init in ("pca", "rca", "lda"):
        A = _start(init, X, y, 2)
        assert A.shape == (2, 50)
        assert np.linalg.matrix_rank(A) == 2


def test_start_given_as_array_is_taken(iris):
    start = np.eye(2, 4) / 3
    assert np.array_equal(_start(start, *iris, 2), start)


def test_array_start_sets_the_dimension(iris):
    assert NCA(init=np.eye(2, 4), max_iter=1).fit(*iris).components_.shape == (2, 4)
    nca = NCA(2, warm_start=True, max_iter=1).fit(*iris).set_params(n_components=None)
    assert nca.fit(*iris).components_.shape == (2, 4)


def test_random_start_follows_the_seed(iris):
    first, second = (_start("random", *iris, 2, random_state=s) for s in (0, 0))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, _start("random", *iris, 2, random_state=1))


def test_penalty_shrinks_the_map(iris):
    free = NCA(2, init="pca").fit(*iris)
    bound = NCA(2, init="pca", alpha=1.0).fit(*iris)
    assert np.linalg.norm(bound.components_) < np.linalg.norm(free.components_)
    _, gradient = nca_value_and_grad(bound.components_, *iris)
    # At the optimum of sum P - alpha |A|^2 the gradients balance, to the solver's tolerance.
    assert np.abs(gradient - 2 * bound.components_).max() < 0.05 * np.abs(gradient).max()


def test_warm_start_continues_from_the_last_map(iris):
    nca = NCA(2, init="pca", max_iter=3, warm_start=True).fit(*iris)
    before = nca.objective_
    nca.fit(*iris)
    assert nca.history_["objective"][0] == pytest.approx(before, rel=1e-12)
    assert nca.objective_ > before


def test_warm_start_refuses_another_number_of_features(iris):
    nca = NCA(2, max_iter=2, warm_start=True).fit(*iris)
    before = nca.components_.copy()
    with pytest.raises(ValueError, match="warm_start"):
        nca.fit(iris[0][:, :3], iris[1])
    assert np.array_equal(nca.components_, before)
    assert nca.n_features_in_ == 4


def test_callback_sees_every_iteration_and_can_stop(iris):
    seen = []

    def callback(transformation, n_iter):
        seen.append((transformation.shape, n_iter))
        if n_iter == 3:
            raise StopIteration

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nca = NCA(2, init="pca", callback=callback).fit(*iris)
    assert seen == [((8,), 1), ((8,), 2), ((8,), 3)]
    assert nca.n_iter_ == 3


def test_callback_cannot_change_the_fit(iris):
    def callback(transformation, n_iter):
        transformation[:] = 0

    watched = NCA(2, max_iter=3, callback=callback).fit(*iris)
    assert np.array_equal(watched.components_, NCA(2, max_iter=3).fit(*iris).components_)


def test_verbose_prints_a_line_per_iteration(iris, capsys):
    nca = NCA(2, verbose=1, max_iter=4).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + nca.n_iter_
    assert f"{nca.objective_:.6f}" in lines[-1]


def test_silent_by_default(iris, capsys):
    NCA(2, max_iter=2).fit(*iris)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.filterwarnings("default")
def test_warns_when_iterations_run_out(iris):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        NCA(2, max_iter=1).fit(*iris)


def test_pickle_predicts_the_same_bits(iris, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))
    assert np.array_equal(again.transform(iris[0]), fitted.transform(iris[0]))


def test_same_bits_for_any_number_of_threads():
    X, y = load_digits(return_X_y=True)
    fits = [NCA(2, init="rca", max_iter=5, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, 5)]
    for other in fits[1:]:
        assert np.array_equal(other.components_, fits[0].components_)
        assert np.array_equal(other.predict_proba(X), fits[0].predict_proba(X))


def test_float32_stays_float32():
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    nca = NCA(2, max_iter=10).fit(X, y)
    wide = NCA(2, max_iter=10).fit(X.astype(float), y)
    assert nca.components_.dtype == nca.transform(X).dtype == np.float32
    assert nca.predict_proba(X).dtype == np.float32
    assert nca.objective_ == pytest.approx(wide.objective_, abs=0.03)


def test_predicts_with_very_many_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 2)) * 1e5
    nca = NCA(init="identity", max_iter=1).fit(X, np.arange(3000) // 2)
    assert np.array_equal(nca.predict(X), np.arange(3000) // 2)


DIFFICULT = {
    "duplicates": np.repeat(np.random.default_rng(0).standard_normal((10, 3)), 4, axis=0),
    "all equal": np.ones((40, 3)),
    "constant column": np.c_[np.random.default_rng(1).standard_normal((40, 2)), np.full(40, 7.0)],
    "far clusters": np.random.default_rng(2).standard_normal((40, 3))
    + 1e6 * (np.arange(40) % 2)[:, None],
    "tiny": np.random.default_rng(3).standard_normal((40, 3)) * 1e-8,
    "huge": np.random.default_rng(4).standard_normal((40, 3)) * 1e8,
    "numeric objects": np.random.default_rng(5).standard_normal((40, 3)).astype(object),
}


@pytest.mark.parametrize("init", ["auto", "rca", "pca"])
@pytest.mark.parametrize("X", DIFFICULT.values(), ids=DIFFICULT.keys())
def test_difficult_data_work(X, init):
    y = np.arange(40) % 4
    y[0] = 9  # a class of one
    nca = NCA(2, init=init, max_iter=10).fit(X, y)
    assert np.all(np.isfinite(nca.components_))
    assert 0 <= nca.objective_ <= 1
    np.testing.assert_allclose(nca.predict_proba(X).sum(axis=1), 1)


BAD = {
    "n_components 0": (dict(n_components=0), "n_components"),
    "n_components > D": (dict(n_components=5), "from 1 to 4"),
    "n_components float": (dict(n_components=2.0), "integer"),
    "init name": (dict(init="best"), "'rca', 'lda'"),
    "init shape": (dict(init=np.eye(3), n_components=2), "columns"),
    "init rows": (dict(init=np.eye(3, 4), n_components=2), "n_components is 2"),
    "init NaN": (dict(init=np.full((2, 4), np.nan), n_components=2), "NaN"),
    "lda rank": (dict(init="lda", n_components=3), "n_classes - 1 = 2"),
    "alpha": (dict(alpha=-1), "alpha"),
    "tol": (dict(tol=np.nan), "tol"),
    "max_iter": (dict(max_iter=0), "max_iter"),
    "callback": (dict(callback="print"), "callable"),
    "kernel": (dict(kernel="epanechnikov"), "kernel"),
    "method": (dict(method="magic"), "method"),
    "solver": (dict(solver="sgd"), "solver"),
    "n_jobs": (dict(n_jobs=0), "n_jobs"),
}


@pytest.mark.parametrize(("parameters", "message"), BAD.values(), ids=BAD.keys())
def test_bad_parameters_are_named_and_leave_the_fit_alone(parameters, message, iris):
    nca = NCA(2, max_iter=2).fit(*iris)
    before = pickle.dumps({k: v for k, v in vars(nca).items() if k.endswith("_")})
    nca.set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        nca.fit(*iris)
    assert pickle.dumps({k: v for k, v in vars(nca).items() if k.endswith("_")}) == before


BAD_DATA = {
    "NaN": (lambda X, y: (np.where(X > 5, np.nan, X), y), ValueError, "NaN"),
    "infinity": (lambda X, y: (np.where(X > 5, np.inf, X), y), ValueError, "infinity"),
    "one class": (lambda X, y: (X, np.zeros(len(X))), ValueError, "one class"),
    "one row": (lambda X, y: (X[:1], y[:1]), ValueError, "minimum of 2"),
    "no rows": (lambda X, y: (X[:0], y[:0]), ValueError, "0 sample"),
    "no features": (lambda X, y: (X[:, :0], y), ValueError, "0 feature"),
    "lengths": (lambda X, y: (X, y[:-1]), ValueError, "inconsistent"),
    "strings": (lambda X, y: (X.astype(str), y), ValueError, "strings"),
    "words": (lambda X, y: (np.full(X.shape, "a", object), y), ValueError, "convert"),
    "sparse": (lambda X, y: (csr_array(X), y), TypeError, "dense"),
    "3-D": (lambda X, y: (X[None], y), ValueError, "dim"),
    "continuous": (lambda X, y: (X, X[:, 0] + 0.01), ValueError, "continuous"),
    "complex": (lambda X, y: (X + 1j, y), ValueError, "Complex"),
    "no y": (lambda X, y: (X, None), ValueError, "requires y"),
}


@pytest.mark.parametrize(("change", "error", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_are_named_and_leave_the_estimator_as_it_was(change, error, message, iris):
    nca = NCA()
    with pytest.raises(error, match=message):
        nca.fit(*change(*iris))
    assert vars(nca) == vars(NCA())


def test_unfitted_estimator_raises_not_fitted_error(iris):
    for method in ("transform", "predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(NCA(), method)(iris[0])


def test_clone_keeps_parameters_only(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "components_")
