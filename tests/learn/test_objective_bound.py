"""NCA's certificate: the value is within its bound of the exact objective of the numbers given."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from fastmetric import NCA, nca_value_and_grad
from tests.twins.density import WIDE


def exact_value(A, X, y, kernel="gaussian", priors=None, rows=None):
    """Return sum P_i in wide arithmetic, without a background."""
    Z = X.astype(WIDE) @ np.asarray(A).astype(WIDE).T
    total = WIDE(0)
    sizes = np.bincount(y)
    for i in np.arange(len(X)) if rows is None else rows:
        s = ((Z - Z[i]) ** 2).sum(axis=1)
        s[i] = np.inf
        if kernel == "gaussian":
            k = np.exp(-(s - s.min()))
        else:
            k = np.where(s < 1, (1 - np.minimum(s, 1)) ** 2, 0)
        if priors is not None:
            left = sizes - (np.arange(len(sizes)) == y[i])
            prior = np.ones(len(sizes)) if isinstance(priors, str) else priors
            k = k * (prior / np.maximum(left, 1))[y]
        if k.sum() > 0:
            total += k[y == y[i]].sum() / k.sum()
    return total


@pytest.mark.parametrize("method", ["exact", "tree", "auto"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("apart", [0.0, 1e4, 1e8])
def test_value_of_distant_clusters_is_within_its_bound(method, dtype, apart):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = (rng.standard_normal((300, 5)) + apart * rng.integers(0, 2, (300, 1))).astype(dtype)
    A = rng.standard_normal((2, 5)) / 2
    value, _, bound = nca_value_and_grad(A, X, y, method=method, return_bound=True)
    # In float32 the map is rounded, too: the bound is that of the map given.
    assert bound > 0
    assert abs(exact_value(A, X, y) - value) <= bound
    if apart == 0:
        assert bound <= len(X) * (1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("method", ["exact", "tree"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 1000.0])
@pytest.mark.parametrize("priors", [None, (1.0, 1e-12, 1e-6)])
def test_bound_stays_small_where_kernels_underflow(method, dtype, scale, priors):
    """Terms lost to underflow count relative to the sums of their row."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    # Whole numbers: every projection and distance is exact, and ties are many.
    X = np.round(3 * rng.standard_normal((300, 5))).astype(dtype)
    A = scale * np.eye(2, 5)
    options = dict(priors=priors, method=method, rows=np.arange(0, 300, 3))
    value, _, bound = nca_value_and_grad(A, X, y, return_bound=True, **options)
    weights = None if priors is None else np.array(priors)
    assert abs(exact_value(A, X, y, priors=weights, rows=options["rows"]) - value) <= bound
    if dtype == np.float64:
        assert bound <= 1e-6


@settings(max_examples=120)
@given(
    st.integers(2, 60),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from(["gaussian", "biweight"]),
    st.sampled_from([None, "equal"]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from(["exact", "tree", "grid"]),
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e3, 1e6]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_value_is_within_its_bound_for_any_data(
    n, n_features, d, kernel, priors, dtype, method, log_scale, offset, few, seed
):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % min(4, n))
    X = rng.standard_normal((n, n_features)) + offset * rng.integers(0, 2, (n, n_features))
    if seed % 3 == 0:
        X = np.round(X)  # ties, and pairs at the cutoff
    X = X.astype(dtype)
    A = rng.standard_normal((min(d, n_features), n_features)) * 10.0**log_scale
    rtol = 0.0
    if method == "grid":  # Gaussians in a few dimensions, within a tolerance
        A, kernel, rtol = A[:3], "gaussian", 10.0 ** rng.uniform(-6, -1)
    rows = rng.integers(0, n, 5) if few else None
    options = dict(kernel=kernel, priors=priors, method=method, rtol=rtol, rows=rows)
    value, _, bound = nca_value_and_grad(A, X, y, return_bound=True, **options)
    exact = exact_value(A, X, y, kernel, priors, rows)
    assert abs(exact - value) <= bound
    assert bound <= (n if rows is None else 5) * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
def test_a_fits_objective_is_within_its_bound(dtype, kernel):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X = (rng.standard_normal((400, 6)) + 2 * np.eye(4, 6)[y]).astype(dtype)
    nca = NCA(2, kernel=kernel, max_iter=10, alpha=0.1, solver="lbfgs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nca.fit(X, y)
    exact = exact_value(nca.components_, X, y, kernel) / len(X)
    assert 0 < nca.error_bound_ < 1e-2
    assert abs(exact - nca.objective_) <= nca.error_bound_


@pytest.mark.parametrize(
    ("dtype", "prior", "apart", "from_others"),
    [(np.float32, 2.2e-20, 57.6, 55.0), (np.float64, 2.2e-250, 170.3, 560.0)],
)
def test_products_of_kernels_and_weights_that_underflow_are_in_the_bound(
    dtype, prior, apart, from_others
):
    """All rows are improbable; the first two have a neighbour of their class, but a light one."""
    far = 9.0 if dtype == np.float32 else 13.05
    others = [[0, 0], [far, 0], [0.3, 0], [far + 0.3, 0]]
    X = np.array([[0, from_others**0.5], [apart**0.5, from_others**0.5], *others], dtype)
    y, priors = np.array([0, 0, 1, 1, 2, 2]), np.array([prior, 1.0, 1.0])
    value, _, bound = nca_value_and_grad(np.eye(2), X, y, priors=priors, return_bound=True)
    assert abs(exact_value(np.eye(2), X, y, priors=priors) - value) <= bound
    assert bound <= 1e-12
