"""Solvers by batches: splits, the step rule, annealing, early stopping, interruptions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from fastmetric import NCA, nca_value_and_grad
from fastmetric.learn.nca import early_stopping, penalised, starts, training
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.optim import holdout, row_batches, step_rule
from fastmetric.learn.rows import ArrayRows, column_deviations, column_means
from tests.twins import nca as naive

pytestmark = pytest.mark.filterwarnings("ignore:NCA has not converged")

BY_BATCHES = ("stochastic", "minibatch")
SOLVERS = ("lbfgs", *BY_BATCHES)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


# Batches


@st.composite
def _points(draw):
    """Draw projected points, some of them equal, and the size of a batch."""
    n, d = draw(st.integers(1, 300)), draw(st.integers(1, 3))
    Z = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).standard_normal((n, d))
    if draw(st.booleans()):
        Z = np.round(Z)
    Z *= 10.0 ** draw(st.integers(-8, 8))
    return Z, draw(st.integers(2, 120))


def _batches(name, Z, size, seed):
    """Return the batches of a sweep over projected points."""
    return row_batches.make_batches(name, len(Z), lambda: Z, size, np.random.RandomState(seed))


@pytest.mark.parametrize("name", row_batches.NAMES)
@given(_points(), st.integers(0, 1000))
def test_sweep_contains_every_row_once(name, points, seed):
    split = _batches(name, *points, seed)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(len(points[0])))
    assert all(len(rows) for rows in split)


@given(_points(), st.integers(0, 1000))
def test_batches_have_the_size_asked_for(points, seed):
    Z, size = points
    sizes = {
        name: np.array([len(rows) for rows in _batches(name, Z, size, seed)])
        for name in row_batches.NAMES
    }
    assert np.ptp(sizes["random"]) <= 1
    # round(n / size) batches: one more or less than n / size by a half at most.
    assert sizes["random"].max() <= max(1.5 * size, 2)
    assert sizes["projection"].max() <= size
    assert len(Z) <= size or 2 * sizes["projection"].min() >= size
    assert sizes["farthest"].max() <= 6 * size  # unbalanced, cut at four times, give or take half


def test_large_cluster_is_split():
    Z = np.zeros((1000, 2))
    Z[:3] = 1e6 * np.arange(1, 4)[:, None]
    split = _batches("farthest", Z, 20, 0)
    assert max(len(rows) for rows in split) <= 120
    assert min(len(rows) for rows in split) == 1


@pytest.mark.parametrize("name", ["farthest", "projection"])
def test_clusters_are_neighbours(name):
    rng = np.random.default_rng(0)
    Z = np.repeat([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]], 64, axis=0)
    Z += rng.standard_normal(Z.shape)
    split = _batches(name, Z, 64, 0)
    within = sum(np.var(Z[rows], axis=0).sum() * len(rows) for rows in split) / len(Z)
    assert within < np.var(Z, axis=0).sum() / 2


@pytest.mark.parametrize("name", row_batches.NAMES)
def test_batches_follow_the_random_state(name):
    Z = np.random.default_rng(0).standard_normal((200, 2))
    splits = [_batches(name, Z, 30, seed) for seed in (0, 0, 1)]
    assert all(np.array_equal(a, b) for a, b in zip(*splits[:2], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(splits[0], splits[2], strict=False))


@pytest.mark.parametrize("name", row_batches.NAMES)
def test_equal_points_are_split_like_any_others(name):
    split = _batches(name, np.full((100, 2), 0.1), 10, 0)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(100))
    assert max(len(rows) for rows in split) <= 60


@pytest.mark.parametrize("n", [1, 3, 40, 200, 5000, 10**5, 10**6, 10**8])
def test_automatic_batches_are_at_most_all_rows(n):
    for solver, most in (("stochastic", 500), ("minibatch", 1000)):
        size = training.choose_batch_size("auto", solver, n)
        assert min(50, n) <= size <= min(most, max(50, n // 4), n)


def test_auto_solver_depends_on_rows_and_classes():
    assert training.choose_solver("auto", 20_000, 3) == "lbfgs"
    assert training.choose_solver("auto", 20_001, 50) == "minibatch"
    assert training.choose_solver("auto", 20_001, 51) == "stochastic"
    assert training.choose_solver("minibatch", 10, 2) == "minibatch"


# The step rule


@pytest.mark.parametrize("variant", [{}, dict(kernel="biweight", background="learn")])
@pytest.mark.parametrize("solver", BY_BATCHES)
def test_the_fit_does_not_depend_on_the_units_of_the_features(solver, variant, wine):
    X, y = wine
    A = np.random.default_rng(0).standard_normal((2, 13)) / 8
    options = dict(solver=solver, max_iter=5, random_state=0, **variant)
    one = NCA(2, init=A, **options).fit(X, y)
    # Powers of two change no digit.
    units = 2.0 ** np.random.default_rng(1).integers(-30, 30, 13)
    for scale in (units, 2.0**-40):
        other = NCA(2, init=A / scale, **options).fit(X * scale, y)
        assert np.array_equal(other.components_ * scale, one.components_)
        assert other.objective_ == one.objective_


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_a_feature_that_does_not_vary_is_not_moved(solver, iris):
    X, y = iris
    X = np.c_[X, np.full(len(X), 0.1)]
    A = np.random.default_rng(0).standard_normal((2, 5)) / 3
    nca = NCA(2, init=A, solver=solver, max_iter=3, random_state=0).fit(X, y)
    assert np.array_equal(nca.components_[:, 4], A[:, 4])
    assert np.all(nca.components_[:, :4] != A[:, :4])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [2, 150, 100_000])
def test_constant_feature_has_exactly_zero_deviation(n, dtype):
    rng = np.random.default_rng(0)
    X = np.c_[np.full((n, 3), [0.1, 1e8 / 3, -7e-9]), rng.standard_normal(n)].astype(dtype)
    found = column_deviations(ArrayRows(X), column_means(ArrayRows(X)))
    assert not found[:3].any()
    assert found[3] == pytest.approx(X[:, 3].astype(float).std(), rel=1e-5)


def test_the_penalty_of_a_row_counts_as_variance(iris):
    X, y = iris
    problem = Objective(ArrayRows(X), y)
    units = penalised.PenalisedObjective((3, 4), np.array([0.0, 1.0, 1e3]), False).units(problem)
    assert np.array_equal(units[0], column_deviations(ArrayRows(X), column_means(ArrayRows(X))))
    np.testing.assert_allclose(units[1] ** 2, X.var(0) + 1 / 150, rtol=1e-12)
    np.testing.assert_allclose(units[2] ** 2, X.var(0) + 1e3 / 150, rtol=1e-12)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(-40, 40), st.integers(1, 5))
def test_a_step_does_not_depend_on_the_scale_of_the_objective(seed, power, d):
    rng = np.random.default_rng(seed)
    A, units = rng.standard_normal((d, 3)), np.abs(rng.standard_normal((d, 3)))
    slopes = rng.standard_normal((8, A.size))
    ends = []
    for scale in (1.0, 2.0**power):
        rule, theta = step_rule.StepRule(A, units), A.ravel()
        for slope in slopes:
            theta = rule.move(theta, scale * slope, 1.0)
        ends.append(theta)
    assert np.array_equal(*ends)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_no_step_is_much_longer_than_its_share_of_the_map(seed, count):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((2, 3))
    rule, theta = step_rule.StepRule(A, np.ones((2, 3))), A.ravel()
    for _ in range(count):
        before = theta
        theta = rule.move(theta, rng.standard_normal(6) * 10.0 ** rng.integers(-9, 9), 1.0)
        # A direction of size at most the largest gradient's over the smoothed size: 1/10 in
        # 1/100 of the squares, over what smoothing has yet to see.
        assert np.linalg.norm(theta - before) <= 10 * step_rule.RATE * np.linalg.norm(A)


def test_zero_gradient_gives_zero_step():
    rule, theta = step_rule.StepRule(np.eye(2), np.ones((2, 2))), np.eye(2).ravel()
    for _ in range(3):
        assert np.array_equal(rule.move(theta, np.zeros(4), 1.0), theta)


# What the solvers reach


@pytest.mark.parametrize(("load", "d"), [(load_iris, 2), (load_wine, 2), (load_digits, 5)])
def test_stochastic_steps_approach_lbfgs(load, d):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    best = NCA(d, init="lda", solver="lbfgs").fit(X, y).objective_
    found = NCA(d, init="lda", solver="stochastic", random_state=0).fit(X, y)
    assert found.objective_ > best - 0.05
    assert found.n_iter_ == 50
    assert found.history_["evaluations"][-1] == 500


@pytest.mark.parametrize("name", row_batches.NAMES)
def test_mini_batches_improve_the_objective(name, wine):
    nca = NCA(2, solver="minibatch", batches=name, batch_size=60, max_iter=15, random_state=0)
    nca.fit(*wine)
    start = NCA(2, init="lda", tol=1e9).fit(*wine)
    assert nca.objective_ > start.objective_
    value, _ = nca_value_and_grad(nca.components_, *wine)
    assert nca.objective_ == pytest.approx(value / len(wine[0]), rel=1e-12)


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_a_fit_by_batches_follows_the_random_state(solver, iris):
    options = dict(solver=solver, max_iter=3, init="pca")
    fits = [NCA(2, random_state=seed, **options).fit(*iris) for seed in (0, 0, 1)]
    assert np.array_equal(fits[0].components_, fits[1].components_)
    assert not np.array_equal(fits[0].components_, fits[2].components_)


@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
@pytest.mark.parametrize("solver", BY_BATCHES)
def test_same_bits_for_any_number_of_threads(solver, kernel):
    X, y = load_digits(return_X_y=True)
    options = dict(solver=solver, kernel=kernel, background=True, max_iter=1, random_state=0)
    fits = [NCA(2, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 2, 5)]
    for other in fits[1:]:
        assert np.array_equal(other.components_, fits[0].components_)
        assert other.objective_ == fits[0].objective_


@pytest.mark.parametrize("name", row_batches.NAMES)
@pytest.mark.parametrize("y", [[0, 1], [0, 1, 1], [0, 0, 1, 2], [0, 0, 0, 0, 0, 1]])
def test_few_rows_work(y, name):
    X = np.random.default_rng(0).standard_normal((len(y), 3))
    for solver in BY_BATCHES:
        nca = NCA(2, init="pca", solver=solver, batches=name, batch_size=2, max_iter=3)
        nca.set_params(background=True, kernel="biweight", random_state=0)
        assert np.all(np.isfinite(nca.fit(X, y).components_))


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_batches_of_one_class_keep_the_map_finite(solver):
    X = np.repeat([[0.0, 0.0], [1e3, 1e3]], 40, axis=0)
    X += np.random.default_rng(0).standard_normal(X.shape)
    y = np.repeat([0, 1], 40)
    nca = NCA(solver=solver, batches="projection", batch_size=8, max_iter=3, random_state=0)
    assert np.all(np.isfinite(nca.fit(X, y).components_))
    assert nca.objective_ > 0.99


@pytest.mark.parametrize("solver", ["lbfgs", "stochastic"])
def test_a_penalty_shrinks_the_map(solver, wine):
    norms = [
        np.linalg.norm(NCA(2, solver=solver, alpha=alpha, random_state=0).fit(*wine).components_)
        for alpha in (0.0, 1.0)
    ]
    assert norms[1] < norms[0]


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_penalised_batches_ignore_nearly_constant_features(solver, iris):
    X, y = iris
    rare = np.zeros((len(X), 20))
    rare[np.random.default_rng(0).permutation(len(X))[:20], np.arange(20)] = 1e-3

    def reached(X):
        nca = NCA(2, solver=solver, alpha=1.0, random_state=0).fit(X, y)
        return nca.objective_ - np.sum(nca.components_**2) / len(X)

    # A rare feature moves one row by a thousandth of its weight: nothing to gain but noise.
    assert reached(np.c_[X, rare]) == pytest.approx(reached(X), abs=1e-3)


# The background's share


@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
def test_a_learnt_share_is_where_the_objective_is_flat(kernel, wine):
    X, y = wine
    options = dict(kernel=kernel, init="lda", alpha=0.1, max_iter=300, tol=1e-9)
    learnt = NCA(2, background="learn", **options).fit(X, y)
    fixed = NCA(2, background=training.BETA_START, **options).fit(X, y)
    assert np.ptp(learnt.background_) == 0
    beta = learnt.background_[0]
    assert 0 < beta < 1
    assert learnt.history_["beta"][0] == training.BETA_START
    assert learnt.history_["beta"][-1] == beta
    assert learnt.objective_ > fixed.objective_
    found = Objective(ArrayRows(X), y, mixture=Mixture(kernel, background=True)).evaluate(
        learnt.components_, beta=beta
    )
    assert found.value / len(X) == pytest.approx(learnt.objective_, rel=1e-12)
    assert abs(beta * (1 - beta) * found.beta_slope) < 1e-3 * len(X)


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_a_share_is_learnt_by_batches_too(solver, wine):
    nca = NCA(2, background="learn", solver=solver, max_iter=10, random_state=0).fit(*wine)
    assert 0 < nca.background_[0] < 1
    assert nca.background_[0] != training.BETA_START
    assert len(nca.history_["beta"]) == nca.n_iter_ + 1


@pytest.mark.parametrize("logit", [-1e3, -40.0, 40.0, 1e3])
def test_a_learnt_share_never_reaches_an_end(logit, wine):
    X, y = wine
    problem = Objective(ArrayRows(X), y, mixture=Mixture("biweight", background=True))
    one = penalised.PenalisedObjective((2, 13), np.zeros(2), learns_beta=True)
    theta = np.append(np.eye(2, 13).ravel() / 3, logit)
    assert 0 < one.split(theta)[1] < 1
    found = one.evaluate(problem, theta)
    assert 0 <= found.value <= len(X)
    assert np.all(np.isfinite(found.gradient))


def test_a_fixed_share_is_kept(wine):
    X, y = wine
    assert np.array_equal(NCA(2, background=0.2, max_iter=2).fit(X, y).background_, [0.2] * 3)
    default = NCA(2, background=True, max_iter=2).fit(X, y).background_
    assert np.array_equal(default, 1 / (np.bincount(y) + 1))
    assert NCA(2, max_iter=2).fit(X, y).background_ is None


@pytest.mark.parametrize("flag", [True, False])
def test_numpys_booleans_are_booleans(flag, iris):
    one, other = (
        NCA(2, kernel="biweight", background=kind(flag), max_iter=3).fit(*iris)
        for kind in (bool, np.bool_)
    )
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.background_, other.background_)


# Starts


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e2, 1e5])
def test_start_is_rescaled_only_if_most_rows_are_out_of_reach(scale, iris):
    X, y = iris
    problem, A = Objective(ArrayRows(X), y, mixture=Mixture("biweight")), scale * np.eye(2, 4)
    s = naive.sq_distances(X @ A.T, X @ A.T)
    np.fill_diagonal(s, np.inf)
    lonely = s.min(axis=1) >= 1
    found = starts.within_reach(A, problem)
    if np.mean(lonely) < 0.4:
        assert found is A
    elif np.mean(lonely) > 0.6:
        ratio = A[0, 0] / found[0, 0]
        np.testing.assert_allclose(found * ratio, A)
        tenth = np.sort(s / ratio**2, axis=1)[:, 9]
        assert 0.3 < np.mean(tenth <= 1) < 0.7


@pytest.mark.parametrize("solver", SOLVERS)
def test_start_without_neighbours_is_rescaled(solver, iris):
    X, y = iris
    X = X + 1e-3 * np.random.default_rng(0).standard_normal(X.shape)  # no duplicates
    nca = NCA(2, kernel="biweight", init=1e6 * np.eye(2, 4), solver=solver, random_state=0)
    assert nca.fit(X, y).history_["objective"][0] > 0.5
    assert nca.objective_ > 0.8


# Annealing


@pytest.mark.parametrize("solver", SOLVERS)
def test_annealing_ends_with_the_components_asked_for(solver, wine):
    options = dict(solver=solver, init="pca", random_state=0, max_iter=20)
    plain = NCA(2, **options).fit(*wine)
    nca = NCA(2, annealing=True, **options).fit(*wine)
    assert nca.components_.shape == (2, 13)
    assert nca.transform(wine[0]).shape == (178, 2)
    assert nca.objective_ > plain.objective_ - 0.05
    assert len(nca.history_["objective"]) == nca.n_iter_ + 1


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_annealing_by_batches_goes_on_at_the_size_of_the_start(solver, wine):
    """Noise makes a map larger; from one that is too large, batches do not come back."""
    X, y = wine[0] * 10.0 ** np.arange(-6, 7), wine[1]
    units = X.std(axis=0)
    A = np.random.default_rng(0).standard_normal((4, 13)) / units
    how = training.Settings(solver, 60, "random", 0.0, False, max_iter=5, tol=0.0)
    trainer = training.Trainer(Objective(ArrayRows(X), y), how, np.random.RandomState(0))
    annealed = trainer.annealed(A, 2)
    assert annealed.shape == (2, 13)
    sizes = [np.linalg.norm(maps * units) for maps in (annealed, A)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-9)


def test_annealing_by_lbfgs_chooses_the_size_itself(wine):
    A = 1e-3 * np.eye(4, 13)
    how = training.Settings("lbfgs", 0, "random", 0.0, False, max_iter=5, tol=0.0)
    trainer = training.Trainer(
        Objective(ArrayRows(wine[0]), wine[1]), how, np.random.RandomState(0)
    )
    assert np.linalg.norm(trainer.annealed(A, 2)) > 10 * np.linalg.norm(A)


@pytest.mark.parametrize("solver", SOLVERS)
def test_annealing_of_rows_that_are_all_equal(solver):
    nca = NCA(1, annealing=True, solver=solver, max_iter=3, random_state=0)
    assert np.isfinite(nca.fit(np.ones((40, 3)), np.arange(40) % 2).components_).all()


def test_annealing_takes_a_start_of_more_rows(iris):
    nca = NCA(1, annealing=True, init=np.eye(3, 4), max_iter=5).fit(*iris)
    assert nca.components_.shape == (1, 4)


def test_annealing_leaves_a_map_of_all_features_alone(iris):
    plain, annealed = (NCA(annealing=flag, max_iter=3).fit(*iris) for flag in (False, True))
    assert np.array_equal(plain.components_, annealed.components_)


# Early stopping


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=120),
    st.floats(0.01, 0.99),
    st.integers(0, 1000),
    st.booleans(),
)
def test_every_class_is_held_out_in_the_same_share(labels, fraction, seed, part):
    y = np.array(labels)
    rows = np.arange(0, len(y), 2 if part else 1)
    learnt, kept = holdout.hold_out(rows, y, fraction, np.random.RandomState(seed))
    assert np.array_equal(np.sort(np.concatenate([learnt, kept])), rows)
    assert np.array_equal(np.unique(y[learnt]), np.unique(y[rows]))
    assert len(kept) > 0 or np.bincount(y[rows]).max() == 1
    sizes, numbers = (np.bincount(y[some], minlength=6) for some in (rows, kept))
    wanted = np.minimum(fraction * sizes, np.maximum(sizes - 1, 0))
    assert np.all(np.abs(numbers - wanted) <= (0.5 if wanted.max() >= 0.5 else 1) + 1e-9)


@pytest.mark.parametrize("variant", [{}, dict(kernel="biweight", background="learn")])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_map_with_the_best_score_is_kept(solver, variant, wine):
    X, y = wine
    options = dict(solver=solver, early_stopping=True, validation_fraction=0.3, max_iter=15)
    nca = NCA(3, random_state=0, **options, **variant).fit(X, y)
    scores = nca.history_["validation"]
    assert {len(figures) for figures in nca.history_.values()} == {nca.n_iter_ + 1}
    learnt, kept = holdout.hold_out(np.arange(len(y)), y, 0.3, np.random.RandomState(0))
    shape = dict(kernel=nca.kernel, background=nca.background_ is not None)
    twin = naive.ClassDensities(
        nca.components_, X[learnt], y[learnt], beta=nca.background_, **shape
    )
    P = twin.posterior(X[kept])[np.arange(len(kept)), y[kept]]
    assert float(P.mean()) == pytest.approx(scores.max(), rel=1e-9)


def test_the_fit_ends_ten_iterations_after_the_best(wine):
    X, y = wine
    noise = np.random.default_rng(0).permutation(y)
    nca = NCA(2, solver="stochastic", early_stopping=True, max_iter=200, random_state=0)
    scores = nca.fit(X, noise).history_["validation"]
    assert nca.n_iter_ < 200
    assert len(scores) - scores.argmax() == 11


@pytest.mark.parametrize("solver", SOLVERS)
def test_stopping_callback_leaves_every_iteration_scored(solver, wine):
    def callback(flat, n_iter):
        if n_iter == 3:
            raise StopIteration

    nca = NCA(2, init="pca", solver=solver, early_stopping=True, callback=callback, random_state=0)
    history = nca.fit(*wine).history_
    assert {len(figures) for figures in history.values()} == {4}
    assert np.all(np.isfinite(history["validation"]))


def test_early_stopping_needs_a_row_to_hold_out():
    X = np.random.default_rng(0).standard_normal((6, 2))
    nca = NCA(early_stopping=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="early_stopping"):
            nca.fit(X, np.arange(6))
    assert not hasattr(nca, "components_")


# Sub-sampling


def test_map_fitted_to_a_sample_predicts_with_all_rows(wine):
    X, y = wine
    nca = NCA(2, subsample=60, max_iter=5, random_state=0).fit(X, y)
    twin = naive.ClassDensities(nca.components_, X, y)
    np.testing.assert_allclose(
        nca.predict_proba(X[:9]), twin.posterior(X[:9]).astype(float), atol=1e-12
    )
    rows = np.sort(np.random.RandomState(0).permutation(len(X))[:60])
    value, _ = nca_value_and_grad(nca.components_, X[rows], y[rows])
    assert nca.objective_ == pytest.approx(value / 60, rel=1e-12)


def test_sample_fraction_is_converted_to_a_count(wine):
    one, other = (
        NCA(2, subsample=subsample, max_iter=3, random_state=0).fit(*wine)
        for subsample in (0.5, len(wine[0]) // 2)
    )
    assert np.array_equal(one.components_, other.components_)


def test_all_rows_as_a_sample_are_all_rows(wine):
    one, other = (
        NCA(2, subsample=subsample, max_iter=3, random_state=0).fit(*wine)
        for subsample in (1.0, None)
    )
    assert np.array_equal(one.components_, other.components_)


def test_a_sample_may_lack_classes_but_not_all_but_one():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.repeat([0, 1, 2], [29, 29, 2])
    seed = next(
        seed
        for seed in range(50)
        if len(np.unique(y[np.random.RandomState(seed).permutation(60)[:6]])) == 2
    )
    nca = NCA(2, subsample=6, max_iter=2, random_state=seed, priors=[1, 2, 3], background=0.5)
    assert nca.fit(X, y).predict_proba(X).shape == (60, 3)
    with pytest.raises(ValueError, match="Raise subsample"):
        NCA(subsample=2, random_state=0).fit(X, np.arange(60) == 0)


# Stopping and interrupting


@pytest.mark.parametrize("solver", BY_BATCHES)
def test_a_callback_sees_every_iteration_and_can_stop(solver, iris):
    seen = []

    def callback(flat, n_iter):
        seen.append((flat.copy(), n_iter))
        flat[:] = 0
        if n_iter == 3:
            raise StopIteration

    nca = NCA(2, solver=solver, callback=callback, random_state=0).fit(*iris)
    assert [n_iter for _, n_iter in seen] == [1, 2, 3]
    assert nca.n_iter_ == 3
    assert np.array_equal(nca.components_.ravel(), seen[-1][0])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interruption_leaves_the_last_iteration(solver, early, iris):
    seen = []

    def callback(flat, n_iter):
        seen.append(flat.copy())
        if n_iter == 3:
            raise KeyboardInterrupt

    nca = NCA(2, init="pca", solver=solver, callback=callback, early_stopping=early)
    nca.set_params(background="learn", random_state=0)
    with pytest.raises(KeyboardInterrupt):
        nca.fit(*iris)
    assert nca.n_iter_ == 3
    assert early or np.array_equal(nca.components_.ravel(), seen[-1])
    assert {len(figures) for figures in nca.history_.values()} == {4}
    assert np.all(np.isfinite(nca.predict_proba(iris[0])))


def _interrupted_at(monkeypatch, call):
    """Make an evaluation raise KeyboardInterrupt: the `call`-th from now on."""
    calls, evaluate = [], Objective.evaluate

    def interrupted(self, *args, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return evaluate(self, *args, **options)

    monkeypatch.setattr(Objective, "evaluate", interrupted)


@pytest.mark.parametrize("solver", SOLVERS)
def test_early_interruption_changes_nothing(solver, iris, monkeypatch):
    nca = NCA(2, init="pca", solver=solver, max_iter=2, random_state=0).fit(*iris)
    before = {name: np.copy(value) for name, value in vars(nca).items() if name != "history_"}
    _interrupted_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        nca.fit(*iris)
    for name, value in before.items():
        assert np.array_equal(getattr(nca, name), value), name


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interruption_while_annealing_ends_the_fit(solver, wine, monkeypatch):
    nca = NCA(2, init="pca", solver=solver, annealing=True, random_state=0)
    _interrupted_at(monkeypatch, 45)
    with pytest.raises(KeyboardInterrupt):
        nca.fit(*wine)
    assert not hasattr(nca, "components_")


def test_interrupted_score_is_recorded_as_nan(iris, monkeypatch):
    score, calls = early_stopping.Validation.score, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(self, *args)

    monkeypatch.setattr(early_stopping.Validation, "score", interrupted)
    nca = NCA(2, init="pca", early_stopping=True, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        nca.fit(*iris)
    assert {len(figures) for figures in nca.history_.values()} == {nca.n_iter_ + 1}
    assert np.isnan(nca.history_["validation"][-1])
