"""Compact support by a cell list: the same pairs as all pairs, however the points lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmetric import engine, nca_value_and_grad
from fastmetric.core.kernels import BIWEIGHT
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.pair_sums.cutoff_grid import CutoffGrid
from fastmetric.learn.pair_sums.problem import Gradient, PairProblem, RowWeights, Segments
from fastmetric.learn.rows import ArrayRows
from tests.twins import pairs as naive


def _clouds(n, d, seed, dtype=np.float64):
    """Return points (n, d): a dense heap, far ones, copies, a line; and classes (n,)."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 10.0], size=(n, 1))
    points[: n // 8] += 1e6
    points[n // 8 : n // 4] = points[n // 2]
    points[n // 4 : n // 3, 1:] = 0.25  # on the rim of a cell
    return points.astype(dtype), np.sort(rng.integers(0, 3, n))


def _in_reach(points, y, weights, chosen=None, n_jobs=1):
    """Return the way through the pairs of rows sorted by class."""
    offsets = np.searchsorted(y, np.arange(y.max() + 2))
    problem = PairProblem(points, Segments(offsets), weights, BIWEIGHT, chosen)
    return CutoffGrid(problem, n_jobs)


def _assert_equal_the_twin(points, y, weights, chosen=None):
    """Assert that sums and scatter are the twin's, to the rounding of squared distances."""
    n, eps = len(points), np.finfo(points.dtype).eps
    rows = np.arange(n) if chosen is None else chosen
    way = _in_reach(points, y, weights, chosen)
    found = way.log_sums()
    gaps = points[rows, None].astype(np.float64) - points.astype(np.float64)
    s = (gaps * gaps).sum(axis=-1)
    s[np.arange(len(rows)), rows] = np.inf
    same = y[rows, None] == y
    # A kernel changes by 2 sqrt(k) ds, and ds is at most 8 eps within reach.
    k = naive.kernel("biweight", s).astype(float)
    off = 16 * eps * (np.sqrt(k) + 8 * eps * (s < 1 + 8 * eps)) + 600 * eps * k
    for logs, part in ((found.own, same), (found.other, ~same)):
        error = np.abs(np.exp(logs) - (part * k) @ weights)
        assert np.all(error <= (part * off) @ weights)
    rng = np.random.default_rng(1)
    own, other = rng.standard_normal((2, len(rows)))
    w = naive.kernel_fall("biweight", s).astype(float) * weights
    rough = (2 * (s < 1 + 8 * eps) * weights) * 16 * eps + 600 * eps * w
    by_row = np.where(same, own[:, None], other[:, None])
    expected, error = np.zeros((2, n, points.shape[1]))
    for to, weight, sizes in (
        (expected, by_row * w, gaps),
        (error, np.abs(by_row) * rough, np.abs(gaps)),
    ):
        terms = np.where(np.isfinite(s), weight, 0)[:, :, None] * sizes
        np.add.at(to, rows, terms.sum(axis=1))
        to += terms.sum(axis=0) * (-1 if to is expected else 1)
    actual = way.gradient(RowWeights(np.zeros(len(rows)), own, other)).points
    assert np.all(np.abs(actual - expected) <= error + 600 * eps * np.abs(expected))


@pytest.mark.parametrize("chosen", [None, np.arange(2, 400, 7)], ids=["all", "some"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_point_clouds_match_the_naive_twin(d, dtype, chosen):
    points, y = _clouds(400, d, seed=d, dtype=dtype)
    weights = np.array([1.0, 0.25, 0.5])[y]
    _assert_equal_the_twin(points, y, weights, chosen)


def test_comparison_with_the_twin_can_fail(monkeypatch):
    points, y = _clouds(100, 2, seed=0)
    weights = np.ones(100)
    _assert_equal_the_twin(points, y, weights)
    right = CutoffGrid.gradient

    def wrong(*args):
        return Gradient(right(*args).points * (1 + 1e-10))

    monkeypatch.setattr(CutoffGrid, "gradient", wrong)
    with pytest.raises(AssertionError):
        _assert_equal_the_twin(points, y, weights)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.integers(-8, 8), st.integers(2, 60))
def test_any_points_match_the_naive_twin(data, d, power, n):
    grid = st.integers(-12, 12).map(lambda k: k / 8)
    values = data.draw(st.lists(grid, min_size=n * d, max_size=n * d))
    points = np.array(values).reshape(n, d) * 10.0**power
    y = np.sort(np.arange(n) % data.draw(st.integers(1, 3)))
    _assert_equal_the_twin(points, y, np.ones(n))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_large_point_sets_match_all_pairs(d):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2500, d)), rng.integers(0, 3, 2500)
    for scale in (0.01, 0.5, 5.0):
        exact, near = (
            nca_value_and_grad(scale * np.eye(d), X, y, kernel="biweight", method=method)
            for method in ("exact", "tree")
        )
        assert near[0] == pytest.approx(exact[0], rel=1e-12)
        np.testing.assert_allclose(near[1], exact[1], atol=1e-11 * np.abs(exact[1]).max())


@pytest.mark.parametrize("d", [1, 3])
def test_same_bits_for_any_number_of_threads(d):
    points, y = _clouds(9000, d, seed=0)
    one, two = (_in_reach(points, y, np.ones(9000), n_jobs=n_jobs) for n_jobs in (1, 3))
    for a, b in zip(one.log_sums()[:2], two.log_sums()[:2], strict=True):
        assert np.array_equal(a, b)
    weights = RowWeights(np.zeros(9000), np.ones(9000), np.arange(9000.0))
    first, second = one.gradient(weights), two.gradient(weights)
    assert np.array_equal(first.points, second.points)


def test_sparse_columns_share_a_task(monkeypatch):
    tasks, run = [], engine.run
    monkeypatch.setattr(
        engine, "run", lambda task, parts, **how: tasks.extend(parts) or run(task, parts, **how)
    )
    apart = 10.0 * np.arange(3000)[:, None] * np.ones(3)  # every point in a lane of its own
    way = _in_reach(apart, np.arange(3000) // 1000, np.ones(3000))
    assert np.all(np.isneginf(way.log_sums().own))
    assert tasks == [(0, 3000)]


def test_auto_uses_the_cutoff_grid_where_few_pairs_are_in_reach():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 2)), rng.integers(0, 3, 3000)
    problem = Objective(ArrayRows(X), y, mixture=Mixture("biweight"), method="auto")
    for rows in (None, np.arange(600)):
        assert problem.evaluate(5 * np.eye(2), rows).way == "pairs within the cutoff"
        assert problem.evaluate(0.01 * np.eye(2), rows).way == "all pairs"
    assert problem.evaluate(5 * np.eye(2), np.arange(20)).way == "all pairs"
