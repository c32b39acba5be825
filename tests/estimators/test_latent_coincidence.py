"""Both estimators: scikit-learn's checks, pairs, labelled rows, bad and difficult input."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmetric import LatentCoincidenceAnalysis, LatentCoincidenceClassifier
from fastmetric.learn.coincidence import impostor_rounds
from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings
from fastmetric.learn.coincidence.impostors import target_neighbors
from fastmetric.learn.coincidence.likelihood import Coincidence
from fastmetric.learn.coincidence.trials import vote
from fastmetric.learn.rows import ArrayRows
from tests.twins import coincidence as naive

pytestmark = pytest.mark.filterwarnings(
    "ignore:LatentCoincidence.* has not converged", "ignore:The number of unique classes"
)


# To the end, on neighbours in the input space.
once = partial(LatentCoincidenceAnalysis, n_passes=1, early_stopping=False)


@parametrize_with_checks(
    [
        LatentCoincidenceAnalysis(max_iter=3),
        LatentCoincidenceAnalysis(solver="em", early_stopping=False, n_passes=2),
        LatentCoincidenceClassifier(n_components=1),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def pairs(iris):
    """Return pairs of rows of iris (m, 2), +1 if of the same class."""
    found = np.random.default_rng(0).integers(0, 150, (400, 2))
    return found, np.where(iris[1][found[:, 0]] == iris[1][found[:, 1]], 1, -1)


# Pairs


def test_row_numbers_and_rows_give_the_same(iris, pairs):
    X, (index, y) = iris[0], pairs
    by_number = LatentCoincidenceAnalysis(2, init=0.5 * np.eye(2, 4)).fit_pairs(index, y, X=X)
    by_rows = LatentCoincidenceAnalysis(2, init=0.5 * np.eye(2, 4)).fit_pairs(X[index], y)
    assert by_rows.log_likelihood_ == pytest.approx(by_number.log_likelihood_, rel=1e-6)
    np.testing.assert_allclose(by_rows.components_, by_number.components_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", ["lbfgs", "em"])
def test_likelihood_matches_the_twin_and_never_decreases(iris, pairs, solver):
    X, (index, y) = iris[0], pairs
    model = LatentCoincidenceAnalysis(2, solver=solver, max_iter=50, tol=1e-7)
    model.fit_pairs(index, y, X=X)
    twin = naive.Sums(
        model.components_, model.noise_variance_, X[index], y == 1, np.ones(len(index))
    )
    assert model.log_likelihood_ == pytest.approx(float(twin.value), rel=1e-9)
    history = model.history_["log_likelihood"]
    assert history[-1] == pytest.approx(model.log_likelihood_, rel=1e-12)
    assert np.all(np.diff(history) >= -1e-9 * np.abs(history[:-1]))
    assert len(history) == model.n_iter_ + 1


def test_fit_is_invariant_to_the_units_of_the_features(iris, pairs):
    X, (index, y) = iris[0], pairs
    units = np.array([1e-8, 1.0, 1e8, 10.0])
    start = np.eye(4) / 2
    one = LatentCoincidenceAnalysis(init=start).fit_pairs(index, y, X=X)
    other = LatentCoincidenceAnalysis(init=start / units).fit_pairs(index, y, X=X * units)
    np.testing.assert_allclose(other.components_ * units, one.components_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("solver", ["lbfgs", "em"])
def test_pairs_of_one_kind_only(iris, pairs, sign, solver):
    index = pairs[0]
    model = LatentCoincidenceAnalysis(2, solver=solver, max_iter=300, tol=1e-9)
    model.fit_pairs(index, np.full(len(index), sign), X=iris[0])
    assert np.isfinite(model.components_).all()
    assert model.noise_variance_ > 0
    assert -0.2 * len(index) < model.log_likelihood_ <= 0  # certain, nearly


def test_pairs_that_all_coincide():
    X = np.ones((6, 2, 3))
    model = LatentCoincidenceAnalysis(2).fit_pairs(X, [1, -1, 1, -1, 1, -1])
    assert np.isfinite(model.log_likelihood_)
    # Half of them coincide: so does the model say, in the end.
    assert model.log_likelihood_ == pytest.approx(6 * np.log(0.5), rel=1e-2)


def test_fit_pairs_discards_the_state_of_fit(iris, pairs):
    model = once(2).fit(*iris)
    assert hasattr(model, "classes_")
    model.fit_pairs(*pairs, X=iris[0])
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "length_scales_")


@pytest.mark.parametrize(
    ("index", "y", "X", "match"),
    [
        ([[0, 1]], [1], None, "shape"),
        (np.zeros((2, 3, 4)), [1, -1], None, "shape"),
        (np.full((2, 2, 4), np.nan), [1, -1], None, "NaN"),
        ([[0, 150]], [1], "iris", "rows 0 to 149"),
        ([[-1, 1]], [1], "iris", "-1"),
        ([[0.0, 1.0]], [1], "iris", "row numbers"),
        ([[0, 1, 2]], [1], "iris", "row numbers"),
        (np.empty((0, 2), int), [], "iris", "row numbers|at least one|minimum"),
        ([[0, 1]], [1, -1], "iris", "one sign per pair"),
        ([[0, 1]], [0], "iris", r"2 \* y - 1"),
        (np.array([[["1", "2"], ["3", "4"]]]), [1], None, "strings"),
    ],
)
def test_bad_pairs_are_refused_and_nothing_is_fitted(iris, index, y, X, match):
    model = LatentCoincidenceAnalysis()
    with pytest.raises(ValueError, match=match):
        model.fit_pairs(index, y, X=iris[0] if X else None)
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(NotFittedError):
        model.transform(iris[0])


def test_pairs_cannot_start_from_classes(iris, pairs):
    with pytest.raises(ValueError, match="needs classes"):
        LatentCoincidenceAnalysis(init="rca").fit_pairs(*pairs, X=iris[0])
    with pytest.raises(ValueError, match="at most min"):
        LatentCoincidenceAnalysis(init="rca").fit(np.eye(3, 7), [0, 0, 1])


# Labelled rows


def test_map_improves_nearest_neighbours_on_new_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6)) * [1, 1, 5, 5, 5, 5]
    y = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0)
    plain = KNeighborsClassifier(3).fit(X[:400], y[:400]).score(X[400:], y[400:])
    model = make_pipeline(LatentCoincidenceAnalysis(max_iter=30), KNeighborsClassifier(3))
    assert model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > plain + 0.2


def test_history_and_scales(wine):
    model = once(3).fit(*wine)
    history = model.history_
    assert {len(figures) for figures in history.values()} == {model.n_iter_ + 1}
    assert history["log_likelihood"][-1] == model.log_likelihood_
    assert np.all(np.diff(history["pairs"]) >= 0)  # previous impostors are kept
    assert np.all(np.diff(history["active"]) >= 0)
    known = np.isfinite(model.length_scales_)
    assert known.sum() == history["active"][-1]
    assert np.median(model.length_scales_[known] ** 2) == pytest.approx(1)


def test_transform_is_the_product_with_components(iris):
    model = once(2).fit(*iris)
    np.testing.assert_allclose(model.transform(iris[0]), iris[0] @ model.components_.T)
    assert list(model.get_feature_names_out()) == [
        "latentcoincidenceanalysis0",
        "latentcoincidenceanalysis1",
    ]


def test_early_stopping_refits_all_rows_for_the_best_length(wine):
    X, y = wine
    model = LatentCoincidenceAnalysis(2, init="pca", n_passes=1, random_state=0).fit(X, y)
    errors = model.history_["validation"]
    assert model.n_iter_ == len(errors) - 1 > 0
    assert np.all(errors[-1] < errors[:-1])
    again = once(2, init="pca", max_iter=3 * model.n_iter_).fit(X, y)
    assert np.array_equal(model.components_, again.components_)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_noise_and_scales_belong_to_the_map_kept(wine, early_stopping, monkeypatch):
    """With them, the pairs at that time have the likelihood that the estimator tells."""
    X, y = wine
    problems = []
    make = impostor_rounds.ImpostorRounds._problem

    def spy(self, W):
        problems.append(make(self, W)[0])
        return problems[-1], 1

    monkeypatch.setattr(impostor_rounds.ImpostorRounds, "_problem", spy)
    model = LatentCoincidenceAnalysis(
        3, n_passes=2, max_iter=60, early_stopping=early_stopping, random_state=0
    ).fit(X, y)
    kappa_sq = np.nan_to_num(model.length_scales_, nan=1.0) ** 2
    found = [
        Coincidence(ArrayRows(X), one.pairs, kappa_sq).log_likelihood(
            model.components_, model.noise_variance_
        )
        for one in problems
        if len(one.X) == len(X)
    ]
    assert np.abs(np.array(found) / model.log_likelihood_ - 1).min() < 1e-9


def test_passes_search_targets_in_the_projection(iris, monkeypatch):
    seen = []

    def spy(rows, y, k):
        seen.append(rows)
        return target_neighbors(rows, y, k)

    monkeypatch.setattr("fastmetric.learn.coincidence.impostor_rounds.target_neighbors", spy)
    model = once(2, n_passes=3, max_iter=18, tol=0.0).fit(*iris)
    assert [rows.shape for rows in seen] == [(150, 4), (150, 2), (150, 2)]
    assert model.n_iter_ == 6  # searches, two in each pass


@pytest.mark.parametrize(("max_iter", "n_passes"), [(20, 3), (7, 5), (6, 20), (1, 1)])
def test_passes_together_take_max_iter_iterations(wine, monkeypatch, max_iter, n_passes):
    steps = []

    def moved(self, problem, model, count):
        steps.append(count)
        return model._replace(log_likelihood=np.inf)  # a gain: the pass goes on

    monkeypatch.setattr(ImpostorRounds, "_moved", moved)
    run = ImpostorRounds(
        ArrayRows(wine[0]), wine[1], Settings(3, "lbfgs", 3, max_iter, 0.0, n_passes)
    )
    states = list(run.states(np.eye(13)))
    assert sum(steps) == max_iter
    assert len(states) == 1 + len(steps) == 1 + -(-max_iter // 3)


def test_without_impostors_the_start_is_kept():
    X = np.concatenate([np.zeros((5, 2)), np.ones((5, 2))]) + 1e-3 * np.arange(10)[:, None]
    start = np.array([[1.0, 2.0], [0.0, 1.0]])
    model = LatentCoincidenceAnalysis(init=start).fit(X, np.arange(10) // 5)
    assert np.array_equal(model.components_, start)
    assert model.log_likelihood_ == 0
    assert model.noise_variance_ > 0


@pytest.mark.parametrize("y", [np.arange(8), np.array([0] + [1] * 7), np.arange(8) // 2])
def test_classes_of_few_rows(y):
    X = np.random.default_rng(0).standard_normal((8, 3))
    assert np.isfinite(LatentCoincidenceAnalysis(2).fit(X, y).components_).all()
    assert np.isfinite(LatentCoincidenceClassifier(2).fit(X, y).predict_proba(X)).all()


@pytest.mark.parametrize("solver", ["lbfgs", "em"])
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_likelihood_is_invariant_to_the_unit_of_length(wine, solver, scale):
    X, y = wine
    one, other = (once(3, solver=solver, max_iter=6).fit(rows, y) for rows in (X, scale * X))
    assert one.history_["log_likelihood"][-1] != one.history_["log_likelihood"][0]
    # A length scale is searched for to half a percent: a near tie of two may go either way, which
    # moves the likelihood, flat at its top, by the square of that.
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_, rel=2.5e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: np.repeat(X[::3], 3, axis=0)[: len(X)],
        lambda X: np.column_stack([X, np.ones(len(X))]),
        lambda X: X + 1e6,
        lambda X: X.astype(object),
        lambda X: 1e-8 * X,
        lambda X: 1e8 * X,
    ],
)
def test_difficult_rows(wine, change):
    X, y = change(wine[0]), wine[1]
    if X.dtype != object:
        X.setflags(write=False)
    Z = LatentCoincidenceAnalysis(2, max_iter=9).fit(X, y).transform(X)
    assert np.isfinite(Z).all()
    assert np.isfinite(LatentCoincidenceClassifier(2).fit(X, y).predict_proba(X)).all()


def finite(model):
    """Return whether all that a fit learnt is finite; a length scale where it is determined."""
    learnt = [model.components_, model.noise_variance_, model.log_likelihood_]
    figures = [values for name, values in model.history_.items() if name != "seconds"]
    known = model.length_scales_[~np.isnan(model.length_scales_)]
    return all(np.isfinite(part).all() for part in (*learnt, *figures, known))


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e8])
def test_equal_rows_are_refused_because_no_map_is_better(value, early_stopping):
    X, y = np.full((12, 3), value), np.arange(12) % 2
    X[::2] *= 1 + np.finfo(float).eps  # rounding is no difference
    model = LatentCoincidenceAnalysis(early_stopping=early_stopping)
    with pytest.raises(ValueError, match=r"All rows of X are equal.*features that vary"):
        model.fit(X, y)
    assert vars(model) == vars(LatentCoincidenceAnalysis(early_stopping=early_stopping))


def test_constant_features_do_not_matter_for_the_others(iris):
    X, y = iris
    with_one = np.c_[X, np.full(len(X), 7.0)]
    # The number of iterations is chosen by errors on held-out rows, which rounding may change.
    assert finite(LatentCoincidenceAnalysis(2, init="pca", max_iter=12).fit(with_one, y))
    options = dict(n_components=2, early_stopping=False, init="pca", max_iter=12)
    model = LatentCoincidenceAnalysis(**options).fit(with_one, y)
    without = LatentCoincidenceAnalysis(**options).fit(X, y)
    assert finite(model)
    # A search finds the length scales, to a few 1e-4: rounding decides where it ends.
    np.testing.assert_allclose(model.components_[:, :4], without.components_, rtol=2e-3)
    np.testing.assert_allclose(model.length_scales_, without.length_scales_, rtol=2e-3)
    assert not model.components_[:, 4].any()


@settings(max_examples=40)
@given(
    kinds=st.integers(2, 6),
    copies=st.integers(1, 4),
    constant=st.booleans(),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
    seed=st.integers(0, 99),
)
def test_duplicates_leave_finite_attributes_and_scales_where_there_were_impostors(
    kinds, copies, constant, scale, seed
):
    rng = np.random.default_rng(seed)
    X = scale * np.repeat(rng.integers(-2, 3, (kinds, 2)).astype(float), copies, axis=0)
    X = np.c_[X, np.full(len(X), scale if constant else 0.0)]
    y = rng.integers(0, 2, len(X))
    y[:2] = [0, 1]
    if (X[0] == X).all():
        return
    model = LatentCoincidenceAnalysis(early_stopping=False, n_passes=1, max_iter=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert finite(model)
    assert (~np.isnan(model.length_scales_)).sum() == model.history_["active"][-1]


def test_apart_duplicates_have_no_impostors_and_no_length_scales():
    X, y = np.repeat([[0.0, 0.0], [1.0, 1.0]], 6, axis=0), np.repeat([0, 1], 6)
    model = LatentCoincidenceAnalysis().fit(X, y)
    assert finite(model)
    assert np.isnan(model.length_scales_).all()


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_components": 5}, "n_components"),
        ({"n_components": 0}, "n_components"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"solver": "newton"}, "solver"),
        ({"init": "lda"}, "init"),
        ({"init": "rca", "n_components": 5}, "n_components"),
        ({"init": np.eye(3)}, "init"),
        ({"init": np.eye(2, 4), "n_components": 3}, "one row per component"),
        ({"refresh": 0}, "refresh"),
        ({"n_passes": 0}, "n_passes"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters_are_refused(iris, pairs, parameters, match):
    model = LatentCoincidenceAnalysis(**parameters)
    for fit in (lambda: model.fit(*iris), lambda: model.fit_pairs(*pairs, X=iris[0])):
        with pytest.raises(ValueError, match=match):
            fit()
        assert not hasattr(model, "components_")


def test_sparse_rows_are_refused(iris):
    for model in (LatentCoincidenceAnalysis(), LatentCoincidenceClassifier()):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            model.fit(csr_array(iris[0]), iris[1])


def test_fit_warns_if_it_did_not_converge(wine):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        once(max_iter=1, tol=0.0).fit(*wine)


def test_ctrl_c_keeps_the_last_complete_map(wine, monkeypatch):
    calls = []
    moved = impostor_rounds.ImpostorRounds._moved

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return moved(self, *arguments)

    monkeypatch.setattr(impostor_rounds.ImpostorRounds, "_moved", interrupted)
    model = once(2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*wine)
    assert model.n_iter_ == 2
    assert model.transform(wine[0]).shape == (178, 2)
    calls.clear()
    model = LatentCoincidenceAnalysis(2)
    with pytest.raises(KeyboardInterrupt):  # in a trial
        model.fit(*wine)
    assert not hasattr(model, "n_features_in_")


# The same bits, float32, pickles


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 6)), rng.integers(0, 4, 3000)
    index = rng.integers(0, 3000, (200_000, 2))
    signs = np.where(y[index[:, 0]] == y[index[:, 1]], 1, -1)
    makers = [
        lambda n_jobs: LatentCoincidenceAnalysis(4, max_iter=6, n_jobs=n_jobs, random_state=0).fit(
            X, y
        ),
        lambda n_jobs: LatentCoincidenceAnalysis(4, max_iter=6, n_jobs=n_jobs, random_state=0).fit(
            X[:200], y[:200]
        ),
        lambda n_jobs: LatentCoincidenceAnalysis(4, max_iter=6, n_jobs=n_jobs).fit_pairs(
            index, signs, X=X
        ),
        lambda n_jobs: LatentCoincidenceClassifier(2, max_iter=6, n_jobs=n_jobs).fit(X, y),
    ]
    for make in makers:
        one, three = make(1), make(3)
        assert np.array_equal(one.components_, three.components_)
        if hasattr(one, "noise_variance_"):
            assert one.noise_variance_ == three.noise_variance_
            assert one.log_likelihood_ == three.log_likelihood_


def test_float32_follows_float64(wine, iris, pairs):
    X, y = wine
    small = LatentCoincidenceClassifier(2).fit(X.astype(np.float32), y)
    large = LatentCoincidenceClassifier(2).fit(X, y)
    assert small.components_.dtype == np.float32
    assert small.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert np.mean(small.predict(X) == large.predict(X)) > 0.97
    by_pairs = [
        LatentCoincidenceAnalysis(2, init=np.eye(2, 4)).fit_pairs(*pairs, X=iris[0].astype(dtype))
        for dtype in (np.float32, np.float64)
    ]
    assert by_pairs[0].components_.dtype == np.float32
    assert by_pairs[0].log_likelihood_ == pytest.approx(by_pairs[1].log_likelihood_, rel=1e-3)
    assert (
        LatentCoincidenceAnalysis(2)
        .fit(X.astype(np.float32), y)
        .transform(X.astype(np.float32))
        .dtype
        == np.float32
    )


@pytest.mark.parametrize("make", [LatentCoincidenceAnalysis, LatentCoincidenceClassifier])
def test_pickles_give_the_same(iris, make):
    model = make(2).fit(*iris)
    other = pickle.loads(pickle.dumps(model))
    method = "predict_proba" if hasattr(model, "predict_proba") else "transform"
    assert np.array_equal(getattr(model, method)(iris[0]), getattr(other, method)(iris[0]))


# The classifier


def test_probabilities_are_those_of_equation_22(wine):
    X, y = wine
    model = LatentCoincidenceClassifier(2).fit(X, y)
    logs = np.array(
        [
            [
                float(naive.log_coincidence(((W @ (x - mean)) ** 2).sum(), 1.0, noise, 2))
                for W, mean, noise in zip(
                    model.components_, model.means_, model.noise_variances_, strict=True
                )
            ]
            for x in X[::10]
        ]
    )
    np.testing.assert_allclose(model.predict_log_coincidence(X[::10]), logs, rtol=1e-9)
    P = model.predict_proba(X[::10])
    np.testing.assert_allclose(P, np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True), rtol=1e-8)
    np.testing.assert_allclose(model.means_[1], X[y == 1].mean(axis=0), rtol=1e-12, atol=1e-12)
    assert np.array_equal(model.predict(X), model.predict_log_coincidence(X).argmax(axis=1))


def test_class_model_is_that_of_pairs_with_the_class_mean(wine):
    X, y = wine
    model = LatentCoincidenceClassifier(2).fit(X, y)
    for c in range(3):
        pairs = np.stack([X, np.broadcast_to(model.means_[c], X.shape)], axis=1)
        twin = naive.Sums(
            model.components_[c], model.noise_variances_[c], pairs, y == c, np.ones(len(X))
        )
        assert model.log_likelihoods_[c] == pytest.approx(float(twin.value), rel=1e-9)


def test_the_classifier_generalises(wine):
    X, y = wine
    assert LatentCoincidenceClassifier(2).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9


def test_distant_rows_have_class_probabilities(iris):
    model = LatentCoincidenceClassifier(2).fit(*iris)
    for far in (1e6, 1e160):
        np.testing.assert_allclose(model.predict_proba(iris[0][:3] + far).sum(axis=1), 1)


# Neighbours


def test_tied_vote_goes_to_the_nearest_class():
    labels = np.array([[3, 1, 1], [3, 1, 2], [2, 2, 0], [1, 0, 0]])
    assert vote(labels).tolist() == [1, 3, 2, 0]


def test_targets_are_the_nearest_other_rows_of_the_class():
    X = np.array([[0.0], [0.0], [0.0], [0.0], [1.0], [5.0], [6.0], [9.0]])
    y = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    firsts, seconds = target_neighbors(ArrayRows(X, 1), y, 2)
    assert np.all(firsts != seconds)
    assert np.array_equal(y[firsts], y[seconds])
    assert np.bincount(firsts, minlength=8).tolist() == [2, 2, 2, 2, 2, 1, 1, 0]
    assert X[seconds[firsts == 4]].max() == 0


@pytest.mark.parametrize("n_features", [3, 20])
@pytest.mark.parametrize("order", ["C", "F"])
def test_targets_match_scikit_learn(n_features, order):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((200, n_features)), rng.integers(0, 3, 200)
    firsts, seconds = target_neighbors(ArrayRows(np.asarray(X, order=order), 1), y, 4)
    for label in range(3):
        rows = np.flatnonzero(y == label)
        near = NearestNeighbors(n_neighbors=4).fit(X[rows]).kneighbors(return_distance=False)
        for row, expected in zip(rows, rows[near], strict=True):
            assert set(seconds[firsts == row]) == set(expected)


def test_refresh_of_one_iteration_equals_two(wine):
    """The first iteration of L-BFGS is a short one: by itself, the map would hardly move."""
    ends = [once(3, refresh=refresh).fit(*wine).history_["log_likelihood"] for refresh in (1, 2)]
    assert np.array_equal(*ends)


@pytest.mark.parametrize("make", [LatentCoincidenceAnalysis, LatentCoincidenceClassifier])
def test_rows_whose_squares_overflow_are_refused(iris, make):
    model = make(2)
    with pytest.raises(ValueError, match="Scale the data down"):
        model.fit(1e200 * iris[0], iris[1])
    with pytest.raises(ValueError, match="Scale the data down"):
        LatentCoincidenceAnalysis(2).fit_pairs([[0, 1]], [1], X=1e200 * iris[0])
    assert not hasattr(model, "components_")
