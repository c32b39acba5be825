"""The same bits for any number of BLAS threads, of all public functions and fits."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np

import fastmetric as fm
from tests.processes.test_processes import ROOT

N, D = 12_000, 40  # a product of two such vectors is one that OpenBLAS cuts into parts


def _workloads(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return calls that read all rows or few, by every public name."""
    A = np.random.default_rng(1).standard_normal((2, D)) / 8
    some, few = slice(0, 600), slice(0, 300)
    gaps = np.abs(np.subtract.outer(np.arange(12.0), np.arange(12.0)))
    covariance = np.exp(-gaps)
    wide = np.exp(-np.abs(np.subtract.outer(np.arange(400.0), np.arange(400.0))))
    cheap = dict(max_iter=3, random_state=0)

    def learnt(estimator, Z, *labels):
        """Return the arrays that a fit leaves, and what its methods return for some rows."""
        estimator.fit(Z, *labels)
        found = [value for name, value in sorted(vars(estimator).items()) if name.endswith("_")]
        for method in ("transform", "predict", "predict_proba", "score_samples", "sample"):
            if hasattr(estimator, method):
                call = getattr(estimator, method)
                found.append(call(50, random_state=0) if method == "sample" else call(Z[few]))
        return found

    densities = {"vector": X[:, :12].std(axis=0), "matrix": covariance, "loo": "loo"}
    return {
        "nca_value_and_grad": lambda: fm.nca_value_and_grad(A, X, y, method="tree", rtol=1e-2),
        "nca_value_and_grad.background": lambda: fm.nca_value_and_grad(
            A, X[some], y[some], kernel="biweight", background=True
        ),
        "NCA.minibatch": lambda: learnt(fm.NCA(2, solver="minibatch", **cheap), X, y),
        "NCA.lbfgs": lambda: learnt(fm.NCA(2, init="lda", **cheap), X[some], y[some]),
        "NCA.background": lambda: learnt(
            fm.NCA(3, background="learn", init="rca", **cheap), X[some], y[some]
        ),
        "NCA.partial_fit": lambda: fm.NCA(2, **cheap).partial_fit(X[some], y[some]).components_,
        "kernel_sums.matrix": lambda: fm.kernel_sums(X[some, :12], bandwidth=covariance),
        "kernel_sums.wide matrix": lambda: fm.kernel_sums(
            np.tile(X[:100], 10), bandwidth=10 * wide
        ),
        **{
            f"KernelDensity.{name}": lambda h=h: learnt(
                fm.KernelDensity(bandwidth=h), X[: 20 * len(X) // 60, :12]
            )
            for name, h in densities.items()
        },
        "LocalComponentAnalysis": lambda: learnt(
            fm.LocalComponentAnalysis(max_iter=3, gaussian=True), X[some]
        ),
        "ManifoldParzen": lambda: learnt(
            fm.ManifoldParzen(3, n_neighbors=10, noise_variance=0.5), X[some]
        ),
        "DensityClassifier": lambda: learnt(
            fm.DensityClassifier(fm.KernelDensity(bandwidth=2.0)), X[some], y[some]
        ),
        "MeanShift": lambda: learnt(fm.MeanShift(bandwidth=covariance[:2, :2] / 9), X[few, :2]),
        "LatentCoincidenceAnalysis": lambda: learnt(
            fm.LatentCoincidenceAnalysis(3, max_iter=5, random_state=0), X[few], y[few]
        ),
        "LatentCoincidenceClassifier": lambda: learnt(
            fm.LatentCoincidenceClassifier(2, max_iter=5), X[few], y[few]
        ),
        "KDTree": lambda: fm.KDTree(X[:, :3]).query(X[some, :3], 5),
    }


def _parts(found: object) -> list[bytes]:
    """Return the bytes of all arrays in what a call returned."""
    if isinstance(found, dict):
        found = [found[name] for name in sorted(found) if name != "seconds"]
    if isinstance(found, list | tuple):
        return [part for one in found for part in _parts(one)]
    array = np.asarray(found)
    return [] if array.dtype == object else [array.tobytes()]


def say_digests() -> None:
    """Print a digest for every workload; in a process of its own."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    X = rng.standard_normal((N, D)) + 1.5 * np.eye(3, D)[y]
    digests = {
        name: hashlib.sha256(b"".join(_parts(call()))).hexdigest()
        for name, call in _workloads(X, y).items()
    }
    print(json.dumps(digests))


def digests(threads: int) -> dict[str, str]:
    """Return the digests of a process whose BLAS has so many threads."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")
    environment = os.environ | {name: str(threads) for name in names}
    code = "from tests.processes.test_blas_threads import say_digests; say_digests()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    return json.loads(done.stdout)


def test_bits_do_not_depend_on_the_number_of_blas_threads():
    one = digests(1)
    for threads in (2, 3):
        more = digests(threads)
        assert [name for name in one if one[name] != more[name]] == []
