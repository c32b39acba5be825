"""The demonstration: handwritten digits in two dimensions, by PCA and by NCA, theirs and ours."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import FunctionTransformer

from fastmetric._compile_notice import compile_notice
from fastmetric.cli.files import outputs
from fastmetric.cli.pictures import need_matplotlib
from fastmetric.nca import NCA
from fastmetric.plotting.projection_panels import Panel, save_projections


class _Split(NamedTuple):
    """Training and held-out images with their digits."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray


def run(picture: Path, force: bool) -> None:
    """Print held-out accuracies of raw pixels, PCA and NCA; draw the projections."""
    outputs.check("--out", picture, outputs.PICTURES, force)
    need_matplotlib()
    X, y = load_digits(return_X_y=True)
    data = _Split(*train_test_split(X / 16, y, test_size=0.3, stratify=y, random_state=0))
    train, test = len(data.X_train), len(data.X_test)
    print(f"Digits: {train} training and {test} held-out images of 8 x 8 pixels, projected to two")
    print("dimensions, since two can be drawn. With more, more digits are told apart: see 8-D.\n")
    print("Compiling the loops of NCA (the first run only) ", end="", flush=True)
    began = time.perf_counter()
    compile_notice.hush()
    with _signs_of_life():
        for d in (2, 8):
            _fit_nca(_Split(data.X_train[:99], data.X_test, data.y_train[:99], data.y_test), d)
    print(f" {time.perf_counter() - began:.1f} s\n")
    print("Right by the nearest neighbour, of the held-out images:\n", flush=True)
    _report("raw pixels, 64-D", lambda: FunctionTransformer().fit(data.X_train), data)
    shown = {
        "PCA": _report("PCA, 2-D", lambda: PCA(2, random_state=0).fit(data.X_train), data),
        "scikit-learn's NCA": _report("scikit-learn's NCA, 2-D", lambda: _fit_peer(data), data),
        "fastmetric's NCA": _report("fastmetric's NCA, 2-D", lambda: _fit_nca(data, 2), data),
    }
    _report("fastmetric's NCA, 8-D", lambda: _fit_nca(data, 8), data)
    panels = [
        Panel(name, f"nearest neighbour right on {accuracy:.0%}", model.transform(data.X_test))
        for name, (model, accuracy) in shown.items()
    ]
    save_projections(picture, panels, data.y_test, "Held-out handwritten digits in 2-D")
    print(f"\nThe projections of the held-out images: {picture}")


def _fit_nca(data: _Split, d: int) -> NCA:
    """Return NCA fitted to the training images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # alpha: chosen by five-fold cross-validation on the training images, for two dimensions.
        return NCA(d, init="rca", alpha=1.0, max_iter=200).fit(data.X_train, data.y_train)


def _fit_peer(data: _Split) -> NeighborhoodComponentsAnalysis:
    """Return scikit-learn's NCA fitted to the training images, by its defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = NeighborhoodComponentsAnalysis(2, random_state=0)
        return peer.fit(data.X_train, data.y_train)


def _report(name: str, fit: Callable[[], Any], data: _Split) -> tuple[Any, float]:
    """Fit a transformer, print its line, and return it with its accuracy."""
    print(f"  {name:<24} ", end="", flush=True)
    began = time.perf_counter()
    with _signs_of_life():
        model = fit()
        seconds = time.perf_counter() - began
        neighbour = KNeighborsClassifier(1).fit(model.transform(data.X_train), data.y_train)
        accuracy = neighbour.score(model.transform(data.X_test), data.y_test)
    steps = f", {model.n_iter_} iterations" if hasattr(model, "n_iter_") else ""
    print(f"{accuracy:6.1%}   learnt in {seconds:5.2f} s{steps}", flush=True)
    return model, accuracy


@contextmanager
def _signs_of_life() -> Iterator[None]:
    """Print a dot each second while the body runs; on a terminal, rub the dots out again."""
    done = threading.Event()

    def dots() -> None:
        count = 0
        while not done.wait(1.0):
            print(".", end="", flush=True)
            count += 1
        if count and sys.stdout.isatty():
            print("\b" * count + " " * count + "\b" * count, end="", flush=True)

    thread = threading.Thread(target=dots, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
