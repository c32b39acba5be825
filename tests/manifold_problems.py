"""Problems for Manifold Parzen Windows, and how near log densities have to come."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

EPS = np.finfo(np.float64).eps


@st.composite
def problems(draw, max_features=6, max_n=40):
    """Draw rows (n, D), queries, q, k and a noise variance: duplicates, outliers, all scales.

    No ties between rows that differ: which of them is a neighbour would be anyone's choice.
    """
    n, n_features = draw(st.integers(2, max_n)), draw(st.integers(1, max_features))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, n_features))
    if draw(st.booleans()):
        X = X[rng.integers(n, size=n)]
    if draw(st.booleans()):
        X[:, draw(st.integers(0, n_features - 1))] = 3.0
    if draw(st.booleans()):
        X[draw(st.integers(0, n - 1))] *= 30.0
    k = draw(st.integers(1, n + 3))
    q = draw(st.integers(0, min(k, n_features)))
    scale = draw(st.sampled_from([1e-8, 1.0, 1e8]))
    query = scale * rng.standard_normal((9, n_features))
    noise = scale**2 * draw(st.sampled_from([1e-2, 0.3, 10.0]))
    return scale * X, query, q, k, noise


def assert_logs(ours, expected, X, query, noise, sharpness=1.0):
    """Assert that log densities are equal, to rounding.

    A quadratic form is right to a few eps of |x|² / noise, if directions are right to eps. They
    are right to eps times `sharpness`.
    """
    sizes = (query**2).sum(axis=1) + (X**2).sum(axis=1).max()
    tolerance = 100 * EPS * (1 + X.shape[1] + sharpness * sizes / noise)
    assert np.all(np.abs(ours - expected.astype(float)) <= tolerance)


def sharpness_of(covariances, q):
    """Return the largest eigenvalue over the gap behind the q-th, at its worst.

    Where the q-th is zero, directions do not matter.
    """
    values = np.pad(np.linalg.eigvalsh(covariances)[:, ::-1], ((0, 0), (0, 1)))
    last, beyond = values[:, max(q - 1, 0)], values[:, q]
    matter = (last > 1e-12 * values[:, 0]) & (q > 0) & (q < covariances.shape[1])
    return (values[matter, 0] / (last - beyond)[matter]).max(initial=1.0)
