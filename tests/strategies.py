"""Data that try to break things: duplicates, constant columns, tiny and huge scales."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st


class Problem(NamedTuple):
    """A labelled data set and a linear map."""

    A: np.ndarray
    X: np.ndarray
    y: np.ndarray


@st.composite
def problems(draw, max_n=60, max_features=8, min_scale=-8, max_scale=4):
    """Draw n 2-60 rows of D 1-8 features in >= 2 classes, some of one row, and A (d, D), d <= D."""
    n = draw(st.integers(2, max_n))
    n_features = draw(st.integers(1, max_features))
    d = draw(st.integers(1, n_features))
    n_classes = draw(st.integers(2, n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, n_features))
    if draw(st.booleans()):  # few distinct values: ties and duplicates
        X = np.round(X)
    if draw(st.booleans()):
        X[:, draw(st.integers(0, n_features - 1))] = 3.0
    if draw(st.booleans()):
        X[draw(st.integers(0, n - 1))] *= 30.0  # an outlier
    X *= 10.0 ** draw(st.integers(min_scale, max_scale))
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    A = rng.standard_normal((d, n_features))
    return Problem(A, X, rng.permutation(y))
