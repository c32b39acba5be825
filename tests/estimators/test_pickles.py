"""Pickles of fitted estimators hold arrays, numbers and strings: no class of a private module.

A saved model then survives that the package's insides are renamed.
"""

from __future__ import annotations

import io
import pickle
from collections import namedtuple

import numpy as np
import pytest

import fastmetric
from fastmetric import (
    NCA,
    DensityClassifier,
    KDTree,
    KernelDensity,
    LatentCoincidenceAnalysis,
    LatentCoincidenceClassifier,
    LocalComponentAnalysis,
    ManifoldParzen,
    MeanShift,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

rng = np.random.default_rng(0)
X, y = rng.standard_normal((60, 3)), np.arange(60) % 3
PAIRS, COINCIDE = np.stack([X[:40], X[20:]], axis=1), np.where(np.arange(40) % 2, 1, -1)

FITTED = {
    "NCA": lambda: NCA(2, max_iter=3).fit(X, y),
    "NCA, background": lambda: NCA(2, background=True, max_iter=3).fit(X, y),
    "NCA.partial_fit": lambda: NCA(2).partial_fit(X, y, classes=[0, 1, 2]),
    "KernelDensity": lambda: KernelDensity(bandwidth=0.5).fit(X),
    "ManifoldParzen": lambda: ManifoldParzen(1, n_neighbors=5, noise_variance=0.1).fit(X),
    "MeanShift": lambda: MeanShift(bandwidth=1.0).fit(X),
    "DensityClassifier": lambda: DensityClassifier(KernelDensity(bandwidth=0.5)).fit(X, y),
    "KDTree": lambda: KDTree(X),
    "LocalComponentAnalysis": lambda: LocalComponentAnalysis(max_iter=3).fit(X),
    "LocalComponentAnalysis, a covariance per row": lambda: LocalComponentAnalysis(
        covariance="local", max_iter=3
    ).fit(X),
    "LocalComponentAnalysis.partial_fit": lambda: LocalComponentAnalysis().partial_fit(X),
    "LatentCoincidenceAnalysis": lambda: LatentCoincidenceAnalysis(2, max_iter=3).fit(X, y),
    "LatentCoincidenceAnalysis.fit_pairs": lambda: LatentCoincidenceAnalysis(
        2, max_iter=3
    ).fit_pairs(PAIRS, COINCIDE),
    "LatentCoincidenceAnalysis.partial_fit_pairs": lambda: LatentCoincidenceAnalysis(
        2
    ).partial_fit_pairs(PAIRS, COINCIDE),
    "LatentCoincidenceClassifier": lambda: LatentCoincidenceClassifier(1).fit(X, y),
}

LIBRARIES = {"numpy", "builtins", "copyreg", "sklearn"}
PUBLIC = {
    (value.__module__, name)
    for name, value in vars(fastmetric).items()
    if isinstance(value, type) and value.__module__.startswith("fastmetric.")
}


def private_classes(model: object) -> set[tuple[str, str]]:
    """Return what a pickle of `model` refers to beside libraries and the public estimators."""
    found = set()

    class Seeing(pickle.Unpickler):
        """An unpickler that notes every class and function it is asked for."""

        def find_class(self, module, name):
            found.add((module, name))
            return super().find_class(module, name)

    Seeing(io.BytesIO(pickle.dumps(model))).load()
    return {one for one in found - PUBLIC if one[0].split(".")[0] not in LIBRARIES}


@pytest.mark.parametrize("name", FITTED)
def test_pickles_hold_no_class_of_a_private_module(name):
    assert not private_classes(FITTED[name]())


def test_every_public_estimator_is_pickled():
    made = {name.split(",")[0].split(".")[0] for name in FITTED}
    assert made == {name for _, name in PUBLIC}


Hidden = namedtuple("Hidden", "a")


def test_a_private_class_in_a_pickle_is_noticed():
    model = NCA(2)
    model.hidden_ = [Hidden(np.ones(2))]
    assert private_classes(model) == {(__name__, "Hidden")}
