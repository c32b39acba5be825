"""NCA over trees: inside its certificate, and its gradient the slope of what it computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from fastmetric import NCA, nca_value_and_grad
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.rows import ArrayRows
from tests.strategies import problems


def _data(n, n_features, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features))
    y = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(int) + rng.integers(0, n_classes - 1, n)
    return X, y


def _both(problem, rtol, **options):
    """Return the evaluation over all pairs, and over trees."""
    y = np.unique(problem.y, return_inverse=True)[1]
    exact = Objective(ArrayRows(problem.X), y).evaluate(problem.A)
    return exact, Objective(ArrayRows(problem.X), y, method="tree", rtol=rtol, **options).evaluate(
        problem.A
    )


@settings(max_examples=150)
@given(problems(max_n=150), st.sampled_from([0.0, 1e-6, 1e-2, 0.3]))
def test_objective_lies_within_its_error_bound(problem, rtol):
    exact, tree = _both(problem, rtol)
    n = len(problem.X)
    # Sums of P_i <= 1 each; the exponents of both sides are rounded.
    Z = problem.X @ problem.A.T
    rounding = 1e-13 * n * (1 + np.square(Z - Z.mean(axis=0)).sum(axis=1).max())
    assert abs(tree.value - exact.value) <= tree.error_bound + min(rounding, n)


@settings(max_examples=60)
@given(problems(max_n=150, min_scale=-2, max_scale=1))
def test_value_and_gradient_without_rtol_match_all_pairs(problem):
    exact, tree = _both(problem, 0.0)
    scale = np.square(problem.X @ problem.A.T).sum(axis=1).max()
    tolerance = 1e-12 * (1 + scale)  # of an exponent
    if tolerance < 1e-3:
        assert abs(tree.value - exact.value) <= tolerance * len(problem.X)
        size = np.abs(problem.X).max() ** 2 * np.abs(problem.A).max() * len(problem.X) ** 2
        assert np.all(np.abs(tree.gradient - exact.gradient) <= tolerance * size)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_large_classes_are_approximated_within_the_bounds(d, scale):
    X, y = _data(4000, 6, 3)
    A = scale * np.random.default_rng(1).standard_normal((d, 6))
    exact = Objective(ArrayRows(X), y).evaluate(A)
    for rtol in (1e-4, 1e-2):
        tree = Objective(ArrayRows(X), y, method="tree", rtol=rtol).evaluate(A)
        assert abs(tree.value - exact.value) <= tree.error_bound <= 2 * rtol * len(X)
        # Not certified; but the weights of a row sum to at most 1, each class's within rtol.
        assert np.abs(tree.gradient - exact.gradient).max() <= rtol * len(X)


def test_a_tolerance_is_used_and_reported():
    X, y = _data(4000, 4, 3)
    A = np.eye(2, 4)
    tree = Objective(ArrayRows(X), y, method="tree", rtol=1e-2).evaluate(A)
    assert tree.error_bound > 0
    assert tree.value != Objective(ArrayRows(X), y).evaluate(A).value


def test_the_gradient_is_the_slope_of_the_objective():
    X, y = _data(3000, 3, 3)
    rng = np.random.default_rng(5)
    A, step = rng.standard_normal((2, 3)), 1e-6
    problem = Objective(ArrayRows(X), y, method="tree")
    gradient = problem.evaluate(A).gradient
    for _ in range(3):
        direction = rng.standard_normal(A.shape)
        ahead = problem.evaluate(A + step * direction).value
        behind = problem.evaluate(A - step * direction).value
        # Central differences: truncation step^2, rounding 1e-13 n / step.
        error = abs((ahead - behind) / (2 * step) - np.sum(gradient * direction))
        assert error <= 1e-6 * np.abs(gradient).max() + 1e-13 * len(X) / step


def test_same_bits_for_every_number_of_threads():
    X, y = _data(5000, 5, 4)
    A = np.random.default_rng(0).standard_normal((2, 5))
    first = nca_value_and_grad(A, X, y, method="tree", rtol=1e-2, n_jobs=1)
    for n_jobs in (2, 5):
        again = nca_value_and_grad(A, X, y, method="tree", rtol=1e-2, n_jobs=n_jobs)
        assert first[0] == again[0]
        assert np.array_equal(first[1], again[1])


def test_auto_agrees_with_one_of_the_methods():
    X, y = _data(6000, 4, 3)
    for scale in (0.1, 30.0):
        A = scale * np.eye(2, 4)
        values = {
            method: nca_value_and_grad(A, X, y, method=method, rtol=1e-3)[0]
            for method in ("exact", "tree", "grid", "auto")
        }
        assert values.pop("auto") in values.values()


def test_float32_is_close_to_float64():
    X, y = _data(3000, 4, 3)
    A = np.eye(2, 4)
    exact = nca_value_and_grad(A, X, y)
    tree = nca_value_and_grad(A, X.astype(np.float32), y, method="tree", rtol=1e-3)
    assert abs(tree[0] - exact[0]) <= 2e-3 * len(X)
    assert np.abs(tree[1] - exact[1]).max() <= 0.02 * np.abs(exact[1]).max()


def test_fit_over_trees_reaches_the_exact_fit():
    X, y = _data(2500, 4, 3)
    options = dict(n_components=2, max_iter=5, tol=0, init="pca")
    with pytest.warns(ConvergenceWarning):  # it is stopped before
        exact = NCA(method="exact", **options).fit(X, y)
    with pytest.warns(ConvergenceWarning):
        tree = NCA(method="tree", rtol=1e-3, **options).fit(X, y)
    assert 0 < exact.error_bound_ < 1e-11
    assert 0 < tree.error_bound_ < 1e-3
    # Five steps from one start, each towards a slightly different gradient.
    assert abs(tree.objective_ - exact.objective_) < 1e-3


@pytest.mark.parametrize("rtol", [-0.1, 1.0, np.nan, "much"])
def test_a_tolerance_out_of_range_is_refused(rtol):
    X, y = _data(50, 3, 3)
    with pytest.raises(ValueError, match="rtol"):
        NCA(rtol=rtol).fit(X, y)
