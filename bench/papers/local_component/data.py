"""The data of Le Roux & Bach's experiments: a drawn text, three clustering problems, USPS.

The graph of 10 nearest neighbours that spectral clustering cuts is our choice: the paper names the
code it used, not its graph. It was compared with an RBF affinity, gamma 0.5, on two or three seeds
per case, which are among the 20 reported, and did better for two Gaussians.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench.shared.setup import UnavailableError, all_rows

TEXT = "To be or not to be"


class Clusters(NamedTuple):
    """A clustering problem in the plane: its draws, rows, clusters."""

    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
    n: int
    k: int


class Parts(NamedTuple):
    """Rows to learn from, for validation and for test."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def text_points(n: int, seed: int = 0) -> np.ndarray:
    """Return n points (n, 2) of the ink of the drawn text, as high as a line is 1."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnavailableError("matplotlib draws the text; it is not installed") from error
    figure = Figure(figsize=(12, 1.2), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.5, 0.5, TEXT, size=60, ha="center", va="center")
    canvas.draw()
    ink = np.argwhere(np.asarray(canvas.buffer_rgba())[:, :, 0] < 128)
    rng = np.random.default_rng(seed)
    pixels = ink[rng.integers(0, len(ink), n)] + rng.random((n, 2))
    return np.column_stack([pixels[:, 1], -pixels[:, 0]]) / np.ptp(ink[:, 0])


def two_gaussians(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two normal clusters of variance 1, at -3 and 3 on the first axis."""
    y = rng.integers(0, 2, n)
    return rng.standard_normal((n, 2)) + np.outer(6 * y - 3, [1, 0]), y


def two_circles(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows near circles of radius 1 and 2, off by a deviation of 0.1."""
    y, t = rng.integers(0, 2, n), rng.uniform(0, 2 * np.pi, n)
    circle = np.column_stack([np.cos(t), np.sin(t)]) * (1 + y)[:, None]
    return circle + 0.1 * rng.standard_normal((n, 2)), y


def five_gaussians(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of five clusters, the one in the middle four times as large as the others.

    The paper shows them in a picture only: the distances (2) and the deviation (0.4) are ours.
    """
    y = np.maximum(rng.integers(0, 8, n) - 3, 0)
    centers = np.array([[0, 0], [2, 0], [-2, 0], [0, 2], [0, -2]])
    return centers[y] + 0.4 * rng.standard_normal((n, 2)), y


CLUSTERS = {
    "two Gaussians": Clusters(two_gaussians, 300, 2),
    "two circles": Clusters(two_circles, 1000, 2),
    "five Gaussians": Clusters(five_gaussians, 800, 5),
}


def noisy(problem: Clusters, noise: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a problem with so many dimensions of white noise added, then whitened."""
    rng = np.random.default_rng(seed)
    X, y = problem.draw(problem.n, rng)
    X = np.column_stack([X, rng.standard_normal((problem.n, noise))])
    U, _, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return U * np.sqrt(len(X)), y


def usps_parts(sizes: tuple[int, int, int], seed: int) -> Parts:
    """Return random rows of USPS, float32, in parts of these sizes."""
    X = _usps()
    order = np.random.default_rng(seed).permutation(len(X))
    ends = np.cumsum(sizes)
    return Parts(*(X[order[end - size : end]] for end, size in zip(ends, sizes, strict=True)))


def _usps() -> np.ndarray:
    """Return all digits of USPS (9298, 256), from -1 to 1, float32."""
    return all_rows("usps")[0].astype(np.float32)
