"""Steps of mean shift from a lattice: sums within the tolerance, steps their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmetric import MeanShift
from fastmetric.learn.kernel_sums import log_sums
from fastmetric.learn.kernel_sums.lattice_steps import LatticeSteps
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.kernel_sums.walk_ways import WALKS, TreeWalk
from tests.twins import density as naive


def _steps(X, query, h, rtol):
    """Return log sums and steps by a lattice, and the way."""
    problem = KernelSums(X, bandwidth=h).way_of_steps(query, rtol).problem
    way = LatticeSteps(problem)
    found = way.mean_shift()
    return found.logs, found.steps, way


@settings(max_examples=40)
@given(
    d=st.integers(1, 3),
    n=st.integers(1, 300),
    log_h=st.floats(-1.5, 1.0),
    log_scale=st.sampled_from([0.0, 0.0, -150.0, 150.0, -8.0]),
    shape=st.sampled_from(["normal", "duplicates", "clusters", "line", "grid"]),
    rtol=st.sampled_from([1e-2, 1e-3, 1e-5, 1e-7]),
    seed=st.integers(0, 2**32 - 1),
)
def test_steps_are_those_over_all_pairs(d, n, log_h, log_scale, shape, rtol, seed):
    rng = np.random.default_rng(seed)
    h = 10.0**log_h
    X = rng.standard_normal((n, d))
    if shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "clusters":
        X = X + 1e6 * h * rng.integers(0, 2, (n, 1))
    elif shape == "line":
        X[:, 1:] = X[:, :1]
    elif shape == "grid":
        X = np.round(X / h) * h / 3
    away = X[rng.integers(0, n, 20)] + h * 10.0 ** rng.uniform(-2, 2) * rng.standard_normal((20, d))
    query = np.concatenate([X[:20], away])
    unit = 10.0**log_scale
    logs, steps, _ = _steps(X * unit, query * unit, h * unit, rtol)
    truth = naive.mean_shift_step(X, query, h).astype(float)
    log_volume = np.log(n) + d * np.log(h * np.sqrt(2 * np.pi))
    exact = naive.log_density(X, query, h).astype(float) + log_volume
    size = d + np.log(n) + np.abs(exact)
    slack = 1e-13 * size + 1e-13 * np.abs(query).max() / h * 40
    assert np.all(np.abs(logs - exact) <= -np.log(1 - rtol) + slack)
    # A share rtol of the sum may be missing, and 10 times as much be turned: within some 12
    # bandwidths beyond the nearest point.
    nearest = np.sqrt(naive.sq_distances(query, X).min(axis=1).astype(float)) / h
    off = np.abs(steps / unit - truth).max(axis=1) / h
    assert np.all(off <= (12 + nearest) * (10 * rtol + slack))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_steps_are_gradients_of_the_sums(d):
    rng = np.random.default_rng(d)
    X, query, h = rng.standard_normal((2000, d)), rng.standard_normal((600, d)), 0.4
    way = LatticeSteps(KernelSums(X, bandwidth=h).way_of_steps(query, 1e-3).problem)
    steps, probe = way.mean_shift().steps, 1e-4 * h
    for k in range(d):
        ahead, behind = (
            way.at(query + sign * probe * np.eye(d)[k]).mean_shift().logs for sign in (1, -1)
        )
        slope = h * (ahead - behind) / (2 * probe)
        # Where the probes lie in two cells, other terms are cut, 1e-6 of the sum at most. The
        # bound: that of the second differences, and of taps as polynomials (2e-8 of the sum).
        off = np.abs(slope - steps[:, k] / h)
        assert np.quantile(off, 0.98) < 1e-6
        assert off.max() < 1e-6 / 2e-4


def test_queries_far_from_all_points_take_other_steps():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 2))
    query = np.concatenate([X[:600], [[9.0, 9.0], [500.0, 0.0]]])
    logs, steps, _ = _steps(X, query, 0.3, 1e-3)
    walked = TreeWalk(KernelSums(X, bandwidth=0.3).way_of_steps(query[600:], 1e-3).problem)
    np.testing.assert_array_equal(steps[600:], walked.mean_shift().steps)
    np.testing.assert_array_equal(logs[600:], walked.mean_shift().logs)


@pytest.mark.parametrize(
    ("n", "d", "rtol", "method"),
    [
        (20_000, 1, 1e-3, "grid"),
        (20_000, 2, 1e-3, "grid"),
        (20_000, 3, 1e-3, "grid"),
        (20_000, 5, 1e-3, "tree"),
        (20_000, 2, 0.0, "exact"),
        (300, 2, 1e-3, "exact"),
    ],
)
def test_the_way_is_chosen_once_for_all_steps(n, d, rtol, method):
    X = np.random.default_rng(0).standard_normal((n, d))
    way = KernelSums(X, bandwidth=0.5 if d < 5 else 0.2).way_of_steps(X, rtol)
    assert way.method == method
    if method == "grid":
        assert way.at(X[:3]).method == "grid"


@settings(max_examples=30)
@given(st.integers(1, 3), st.floats(-1.5, 1.0), st.integers(0, 2**32 - 1))
def test_sums_at_modes_are_those_that_the_plan_is_made_for(d, log_h, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, d)) * rng.choice([1, 10, 100])
    modes = MeanShift(bandwidth=10.0**log_h, max_iter=2000).fit(X).cluster_centers_
    sums = KernelSums(X, bandwidth=10.0**log_h)
    assert np.all(sums.log_sums(modes).estimate >= -d / 2 - 1e-6)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_clusters_are_those_by_trees(d, dtype, monkeypatch):
    rng = np.random.default_rng(d)
    centers = 4 * rng.standard_normal((5, d))
    X = (centers[rng.integers(0, 5, 6000)] + rng.standard_normal((6000, d))).astype(dtype)
    X[:3] *= 100  # clusters of one row
    by_lattice = MeanShift(bandwidth=0.6).fit(X)
    monkeypatch.setattr(log_sums, "STEPPING_WAYS", WALKS)
    by_trees = MeanShift(bandwidth=0.6).fit(X)
    tolerance = 1e-4 if dtype == np.float32 else 1e-5
    centers = by_trees.cluster_centers_
    np.testing.assert_allclose(by_lattice.cluster_centers_, centers, atol=tolerance, rtol=1e-6)
    assert np.mean(by_lattice.labels_ != by_trees.labels_) < 2e-3
    # Never below the rounding of a step, 8 eps of the coordinates.
    rounding = 8 * np.finfo(dtype).eps * np.abs(X).max() / 0.6
    assert by_lattice.gradient_norms_.max() <= max(1e-6, 1.01 * rounding)


def test_the_same_bits_on_any_number_of_threads():
    X = np.random.default_rng(0).standard_normal((30_000, 2))
    fits = [MeanShift(bandwidth=0.3, n_jobs=jobs).fit(X) for jobs in (1, 2, 3)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].labels_, other.labels_)
        np.testing.assert_array_equal(fits[0].cluster_centers_, other.cluster_centers_)
