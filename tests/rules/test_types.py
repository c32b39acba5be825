"""Types as a user's type checker sees them: wrong choices and names are found, right ones pass."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import fastmetric
from fastmetric import (
    density_classifier,
    kernel_density,
    latent_coincidence,
    local_component,
    manifold_parzen,
    nca,
)
from fastmetric.learn import kernel_table, linear_starts
from fastmetric.learn.coincidence import likelihood_solvers
from fastmetric.learn.kernel_sums import log_sums
from fastmetric.learn.nca import training
from fastmetric.learn.optim import row_batches
from fastmetric.learn.pair_sums import ways

ROOT = Path(__file__).resolve().parents[2]

GOOD = """
import numpy as np
from fastmetric import NCA, DensityClassifier, KDTree, KernelDensity, MeanShift, kernel_sums
from fastmetric import LatentCoincidenceAnalysis, LocalComponentAnalysis, ManifoldParzen

X = np.zeros((9, 2))
y = [0, 1, 2] * 3
nca = NCA(2, solver="minibatch", init=np.eye(2), background="learn", priors=[1, 2, 3]).fit(X, y)
Z: np.ndarray = nca.fit_transform(X, y)
share: float = nca.score(X, y)
nca.set_params(alpha=1.0).fit(X, y).n_features_in_
nca.get_feature_names_out()
dist, ind = KDTree(X).query(X, k=2)
rows: np.ndarray = KDTree(X).query(X, 2, return_distance=False)
same: np.ndarray = KDTree([[0.0, 1.0]]).query([[0.0, 1.0]], 1, False)
count: np.ndarray = KDTree(X).query_radius(X, 1.0, count_only=True)
near, far = KDTree(X).query_radius(X, [1.0] * 9, return_distance=True, sort_results=True)
size: int = KDTree(X).leaf_size
labels: np.ndarray = MeanShift(bandwidth=1.0).fit_predict(X)
KernelDensity(bandwidth="loo", kernel="biweight").fit(X).score_samples(X)
KernelDensity(bandwidth=[1.0, 2.0]).fit(X).sample(3, random_state=0)
kernel_sums(X, kernel="cosine", method="grid")
LatentCoincidenceAnalysis(solver="em", n_passes="auto", init="rca").fit(X, y).transform(X)
LocalComponentAnalysis(covariance="diag", nu=(0.1, 0.2)).partial_fit(X)
DensityClassifier(ManifoldParzen(1, n_neighbors=2, noise_variance=0.1), priors="equal").fit(X, y)
"""

WRONG = {
    'NCA(solver="adam")': "arg-type",
    "NCA(2).fitt(X, y)": "attr-defined",
    'NCA(init="lca")': "arg-type",
    "NCA(2).fit(X, y).componentz_": "attr-defined",
    'NCA(kernel="cosine")': "arg-type",
    "NCA(n_component=2)": "call-arg",
    "NCA(2).get_param()": "attr-defined",
    'KernelDensity(bandwidth="scot")': "arg-type",
    'KernelDensity(kernel="gauss")': "arg-type",
    'KernelDensity(algorithm="brute")': "arg-type",
    'kernel_sums(X, method="trees")': "arg-type",
    'nca_value_and_grad(X, X, y, method="lattice")': "arg-type",
    'LatentCoincidenceAnalysis(solver="adam")': "arg-type",
    'LatentCoincidenceClassifier(solver="adam")': "arg-type",
    'LocalComponentAnalysis(covariance="fulll")': "arg-type",
    'LocalComponentAnalysis(gaussian="find")': "arg-type",
    'ManifoldParzen(1, n_neighbors=2, noise_variance=1.0, neighborhood="warm")': "arg-type",
    'DensityClassifier(KernelDensity(), priors="same")': "arg-type",
    "MeanShift().fit(X).predicted(X)": "attr-defined",
    "KDTree(X).querry(X)": "attr-defined",
    "KDTree(X).query(X, k=2).shape": "attr-defined",  # a pair
    "KDTree(X).query_radius(X, 1.0, count=True)": "call-overload",
}


def checked(snippet: str, folder: Path) -> str:
    """Return what mypy says of a user's file, which imports the package as it is here."""
    path = folder / "user.py"
    path.write_text(snippet, "utf-8")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports"]
    done = subprocess.run(
        [*command, "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache"), str(path)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_a_type_checker_finds_wrong_choices_and_names_and_no_others(tmp_path):
    names = ", ".join(sorted(set(fastmetric.__all__) - {"__version__"}))
    lines = [f"from fastmetric import {names}", "import numpy as np"]
    lines += ["X, y = np.zeros((9, 2)), [0, 1, 2] * 3", *WRONG]
    found = checked("\n".join(lines) + "\n" + GOOD, tmp_path)
    errors = {int(line): code for line, code in re.findall(r":(\d+): error: .*\[(.+)\]", found)}
    expected = dict(enumerate(WRONG.values(), start=4))
    assert errors == expected, found


# The choices that types allow are those that are allowed


def choices(function: Any, name: str) -> set[str]:
    """Return the strings that the type of a parameter allows."""

    def literals(hint: Any) -> set[str]:
        if get_origin(hint) is Literal:
            return set(get_args(hint))
        return set().union(*(literals(part) for part in get_args(hint)))

    return literals(get_type_hints(function)[name])


_STARTS = set(linear_starts.NAMES)
CHOICES = {
    ("NCA", "kernel"): kernel_table.SMOOTH,
    ("NCA", "background"): {"learn"},
    ("NCA", "priors"): {"equal"},
    ("NCA", "method"): ways.METHODS,
    ("NCA", "rtol"): {"auto"},
    ("NCA", "solver"): training.SOLVERS,
    ("NCA", "batch_size"): {"auto"},
    ("NCA", "batches"): row_batches.NAMES,
    ("NCA", "init"): _STARTS,
    ("nca_value_and_grad", "kernel"): kernel_table.SMOOTH,
    ("nca_value_and_grad", "priors"): {"equal"},
    ("nca_value_and_grad", "method"): ways.METHODS,
    ("kernel_sums", "kernel"): kernel_table.NAMES,
    ("kernel_sums", "method"): log_sums.METHODS,
    ("KernelDensity", "bandwidth"): kernel_density._RULES,
    ("KernelDensity", "algorithm"): {"auto", "kd_tree", "ball_tree"},
    ("KernelDensity", "kernel"): kernel_table.NAMES,
    ("KernelDensity", "metric"): kernel_density._METRICS,
    ("KernelDensity", "method"): log_sums.METHODS,
    ("LatentCoincidenceAnalysis", "solver"): likelihood_solvers.SOLVERS,
    ("LatentCoincidenceAnalysis", "init"): latent_coincidence._INITS,
    ("LatentCoincidenceAnalysis", "n_passes"): {"auto"},
    ("LatentCoincidenceClassifier", "solver"): likelihood_solvers.SOLVERS,
    ("LocalComponentAnalysis", "covariance"): local_component._COVARIANCES,
    ("LocalComponentAnalysis", "gaussian"): {"search"},
    ("LocalComponentAnalysis", "nu"): {"auto"},
    ("ManifoldParzen", "neighborhood"): manifold_parzen._NEIGHBORHOODS,
    ("DensityClassifier", "priors"): {"equal"},
}


@pytest.mark.parametrize(("place", "name"), CHOICES)
def test_types_allow_the_choices_that_are_allowed(place, name):
    what = getattr(fastmetric, place)
    function = what.__init__ if isinstance(what, type) else what
    assert choices(function, name) == set(CHOICES[place, name])


def test_no_choice_is_a_mere_string():
    for place in set(fastmetric.__all__) - {"__version__", "save", "load"}:
        what = getattr(fastmetric, place)
        function = what.__init__ if isinstance(what, type) else inspect.unwrap(what)
        hints = get_type_hints(function)
        hints.pop("X", None)  # array-likes include texts
        plain = [name for name, hint in hints.items() if hint is str or str in get_args(hint)]
        assert not plain, f"{place}: {plain}"
        chosen = {name for name, hint in hints.items() if choices(function, name)}
        assert chosen == {name for owner, name in CHOICES if owner == place}


def test_bases_are_those_of_scikit_learn_at_run_time():
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin

    assert {BaseEstimator, ClassifierMixin, TransformerMixin} <= set(nca.NCA.__mro__)
    assert BaseEstimator in density_classifier.DensityClassifier.__mro__
