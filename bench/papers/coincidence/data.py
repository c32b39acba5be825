"""The data of Der & Saul's experiments, prepared as the paper has it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedShuffleSplit

from bench.shared.setup import Split, all_rows, customary_split

_CHUNK = 5_000  # images that are deslanted at a time


class Task(NamedTuple):
    """A data set of Table 1."""

    name: str
    n_inputs: int  # principal components that all methods work on
    p: int  # dimension of the latent space
    split: bool  # it has a test set of its own


TASKS = {
    task.name: task
    for task in (
        Task("MNIST", 164, 40, True),
        Task("ISOLET", 172, 40, True),
        Task("letter", 16, 16, False),
        Task("balance-scale", 4, 4, False),
        Task("iris", 4, 4, False),
    )
}


def raw_splits(task: Task, n_splits: int, n_rows: int | None = None) -> Iterator[Split]:
    """Yield the split of a set that has one, of n_rows random training rows; else random 70/30."""
    if task.split:
        split = customary_split(task.name.lower())
        if n_rows is not None:
            chosen = np.random.default_rng(0).permutation(len(split.X))[:n_rows]
            split = split._replace(X=split.X[chosen], y=split.y[chosen])
        yield split._replace(X=split.X.astype(float), X_test=split.X_test.astype(float))
        return
    X, y = all_rows(task.name)
    for train, test in StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(X, y):
        yield Split(X[train], y[train], X[test], y[test])


def inputs(task: Task, split: Split) -> Split:
    """Return a split as the methods get it: digits deslanted, leading principal components."""
    if task.name == "MNIST":
        split = split._replace(X=deslanted(split.X), X_test=deslanted(split.X_test))
    if task.n_inputs >= split.X.shape[1]:
        return split
    pca = PCA(task.n_inputs, svd_solver="covariance_eigh").fit(split.X)
    return split._replace(X=pca.transform(split.X), X_test=pca.transform(split.X_test))


def deslanted(X: np.ndarray, side: int = 28) -> np.ndarray:
    """Return images (n, side^2), grey from 0 to 255, sheared upright and scaled to 1.

    The slant is the slope of x over y by the second moments of the ink; each line of an image
    is moved by it, about the centre of mass.
    """
    parts = [_deslanted(part, side) for part in np.array_split(X, max(1, len(X) // _CHUNK))]
    return np.concatenate(parts) / 255


def _deslanted(X: np.ndarray, side: int) -> np.ndarray:
    images = X.reshape(-1, side, side)
    ink = np.maximum(images.sum(axis=(1, 2)), 1e-9)
    y, x = np.mgrid[:side, :side]
    mean_x, mean_y = ((images * axis).sum(axis=(1, 2)) / ink for axis in (x, y))
    gaps_x, gaps_y = x - mean_x[:, None, None], y - mean_y[:, None, None]
    covariance = (images * gaps_x * gaps_y).sum(axis=(1, 2))
    slope = covariance / np.maximum((images * gaps_y**2).sum(axis=(1, 2)), 1e-9)
    # Where each pixel of the upright image is taken from; between two pixels, linearly.
    source = x + slope[:, None, None] * gaps_y
    left = np.floor(source).astype(int)
    share = source - left
    padded = np.pad(images, ((0, 0), (0, 0), (1, 2)))
    at = np.clip(left + 1, 0, side + 1)
    near, far = (np.take_along_axis(padded, at + k, axis=2) for k in (0, 1))
    return ((1 - share) * near + share * far).reshape(len(X), -1)


@cache
def one_split(name: str, n_rows: int | None = None) -> Split:
    """Return the first split of a set, as the methods get it."""
    task = TASKS[name]
    return inputs(task, next(raw_splits(task, 1, n_rows)))
