"""The spiral of Vincent & Bengio, and the choice of parameters on its validation part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric import ManifoldParzen

_NEIGHBORS = range(3, 31)
_WIDTHS = np.geomspace(1e-5, 0.05, 75)  # of the noise: factors of 1.12


class Spiral(NamedTuple):
    """Rows to learn from, for validation and for test."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


class Choice(NamedTuple):
    """What validation chose, and its mean of minus the log density."""

    valid: float
    test: float
    noise: float
    k: int | None
    model: ManifoldParzen


def draw_spiral(seed: int) -> Spiral:
    """Return 300, 300 and 10,000 rows of 0.04 t (sin t, cos t), t in (3, 15), and noise."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(3, 15, 10_600)
    X = 0.04 * t[:, None] * np.column_stack([np.sin(t), np.cos(t)])
    return Spiral(*np.split(X + 0.01 * rng.standard_normal(X.shape), [300, 600]))


def chosen_by_validation(data: Spiral) -> dict[str, Choice]:
    """Return the choice for ordinary Parzen windows, one direction and two.

    One fit for every k; its grid has both numbers of directions and all widths of the noise.
    """
    scores = np.empty((3, len(_NEIGHBORS), len(_WIDTHS)))
    for i, k in enumerate(_NEIGHBORS):
        model = ManifoldParzen(2, n_neighbors=k, noise_variance=1.0).fit(data.train)
        logs = model.score_samples_grid(
            data.valid, n_components=[0, 1, 2], noise_variance=_WIDTHS**2
        )
        scores[:, i] = logs.mean(axis=2)
    names = ("Parzen", "q = 1", "q = 2")
    return {name: _choice(data, q, scores[q]) for q, name in enumerate(names)}


def _choice(data: Spiral, q: int, scores: np.ndarray) -> Choice:
    """Return the best of the scores (k, width) for q directions, and what it does on the test."""
    i, j = np.unravel_index(scores.argmax(), scores.shape)
    noise, k = float(_WIDTHS[j] ** 2), _NEIGHBORS[i]
    model = ManifoldParzen(q, n_neighbors=k, noise_variance=noise).fit(data.train)
    test = -model.score(data.test)
    return Choice(-float(scores[i, j]), test, noise, k if q else None, model)
