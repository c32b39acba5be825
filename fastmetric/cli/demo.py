"""The demonstration: handwritten digits in two dimensions, by PCA and by NCA."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer

from fastmetric.nca import NCA
from fastmetric.plotting import Panel, save_projections


class _Split(NamedTuple):
    """Training and held-out images with their digits."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray


def run(picture: Path) -> None:
    """Print held-out accuracies of raw pixels, PCA and NCA; draw both projections."""
    X, y = load_digits(return_X_y=True)
    data = _Split(*train_test_split(X / 16, y, test_size=0.3, stratify=y, random_state=0))
    train, test = len(data.X_train), len(data.X_test)
    print(f"Digits: {train} training and {test} held-out images of 8 x 8 pixels.")
    print("Preparing the compiled core, up to half a minute on its first run: ", end="", flush=True)
    began = time.perf_counter()
    _fit_nca(_Split(data.X_train[:99], data.X_test, data.y_train[:99], data.y_test))
    print(f"{time.perf_counter() - began:.1f} s.")
    print("Accuracy of the nearest neighbour on the held-out images:\n", flush=True)
    _report("raw pixels, 64-D", lambda: FunctionTransformer().fit(data.X_train), data)
    pca = _report("PCA, 2-D", lambda: PCA(2, random_state=0).fit(data.X_train), data)
    nca = _report("NCA, 2-D", lambda: _fit_nca(data), data)
    panels = [
        Panel(name, f"nearest neighbour right on {accuracy:.0%}", model.transform(data.X_test))
        for name, (model, accuracy) in (("PCA", pca), ("NCA", nca))
    ]
    title = "Held-out handwritten digits in 2-D"
    save_projections(picture, panels, data.y_test, title)
    model = nca[0]
    print(f"\nNCA: {model.n_iter_} iterations, after which a training image's random neighbour")
    print(f"is of its own digit with probability {model.objective_:.2f}, on average.")
    print(f"Both projections of the held-out images: {picture}")


def _fit_nca(data: _Split) -> NCA:
    """Return NCA fitted to the training images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # alpha: chosen by five-fold cross-validation on the training images.
        return NCA(2, init="rca", alpha=1.0, max_iter=200).fit(data.X_train, data.y_train)


def _report(name: str, fit: Callable[[], Any], data: _Split) -> tuple[Any, float]:
    """Fit a transformer, print its line, and return it with its accuracy."""
    began = time.perf_counter()
    model = fit()
    seconds = time.perf_counter() - began
    neighbour = KNeighborsClassifier(1).fit(model.transform(data.X_train), data.y_train)
    accuracy = neighbour.score(model.transform(data.X_test), data.y_test)
    print(f"  {name:<20} {accuracy:6.1%}   learnt in {seconds:6.2f} s", flush=True)
    return model, accuracy
