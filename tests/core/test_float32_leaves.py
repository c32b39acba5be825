"""Leaves in float32: within their error, used where the tolerance is wide, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmetric import kernel_sums
from fastmetric.core.error_bounds import FLOAT32_COARSEST, FLOAT32_LIGHTEST, float32_error
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.core.walk.interaction_lists import Walk
from fastmetric.core.walk.query_groups import Rule
from fastmetric.learn.kernel_sums.certified_walks import WalkSums, walk_sums
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.tree_building import SUMS_LEAF_SIZE, with_float32_leaves
from tests.twins import density as naive

ROOT = np.array([0])


def rule_of(sums, rtol, atol=0.0) -> Rule:
    """Return the rule of a walk within some tolerances."""
    return sums.walk_over_leaves(sums._rule(rtol, atol)).rule


def leaf_totals(X, weights, query, h, in_float32, atol=0.0) -> WalkSums:
    """Return the totals of some queries over one leaf, in units of the weights."""
    sums = KernelSums(X, weights, bandwidth=h)
    reference = with_float32_leaves(sums.reference, sums._h, 1)
    order, queries = sums.grouped(query, None)
    # No tolerance to speak of: the leaf has to be summed pair by pair.
    rule = Rule(GAUSSIAN, sums._factor, 1e-17, atol, in_float32)
    [found] = walk_sums([(queries, Walk(reference, rule, ROOT))])
    total, error = np.empty((2, len(query)))
    total[order], error[order] = found.total, found.error
    return found._replace(total=total, error=error)


@settings(max_examples=300)
@given(
    st.integers(1, 12),
    st.integers(1, SUMS_LEAF_SIZE),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.floats(1e-3, 6.0),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.sampled_from([0.0, 1e-6]),
    st.integers(0, 2**32 - 1),
)
def test_float32_leaf_is_within_its_error_bound(d, n, offset, width, away, atol, seed):
    rng = np.random.default_rng(seed)
    h = 10.0 ** rng.integers(-3, 4)
    X = (offset + width * rng.random((n, d)) / np.sqrt(d)) * h
    query = X[rng.integers(n, size=20)] + away * h * rng.standard_normal((20, d)) / np.sqrt(d)
    weights = 10.0 ** rng.uniform(-24, 0, n)
    error = float32_error(d, n)
    found = leaf_totals(X, weights, query, h, error, atol)
    unit = np.ldexp(1.0, np.frexp(weights.max())[1] - 1)
    truth = naive.density_sums(X, query, h=h, weights=weights / unit)
    # Coordinates of 1e6 h have been rounded before: their differences are taken as they are.
    assert np.all(np.abs(found.total - truth) <= found.error + 1e-13 * truth)
    assert np.all(found.error <= 1.01 * (error * truth + atol) + 1e-300)


def test_float32_leaf_check_can_fail():
    """Float32 it is, and a five hundredth of the error would not cover it."""
    rng = np.random.default_rng(0)
    X, query = rng.random((64, 3)), rng.random((66, 3))
    error = float32_error(3, 64)
    found = leaf_totals(X, None, query, 0.4, error)
    truth = naive.density_sums(X, query, h=0.4)
    off = np.abs(found.total - truth)
    assert np.all(off <= found.error)
    assert np.any(off > 0.002 * found.error)


@pytest.mark.parametrize("d", range(1, 13))
def test_a_tolerance_of_1e_4_allows_float32(d):
    rng = np.random.default_rng(d)
    sums = KernelSums(rng.standard_normal((1000, d)))
    assert rule_of(sums, 1e-4).in_float32 > 0
    assert rule_of(sums, 1e-4).rtol < 1e-4
    assert rule_of(sums, 1e-5).in_float32 == 0
    assert rule_of(sums, 0.0, 1e-2).in_float32 == 0


def test_float32_error_is_at_most_the_coarsest_in_any_dimension():
    """Beyond, errors would not just add up."""
    for d in (390, 410):
        sums = KernelSums(np.random.default_rng(0).standard_normal((64, d)))
        error = float32_error(d, 64)
        assert rule_of(sums, 0.5).in_float32 == (error if d == 390 else 0)
    assert float32_error(390, 64) <= FLOAT32_COARSEST < float32_error(410, 64)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rtol", [0.0, np.float32(0.1)])
def test_tolerances_are_plain_floats_whatever_was_given(dtype, rtol):
    """Of another type they would have every walk compiled again."""
    rule = rule_of(KernelSums(np.ones((5, 2), dtype)), rtol, np.float32(0))
    assert [type(x) for x in (rule.rtol, rule.atol, rule.in_float32)] == [float] * 3


def test_weights_that_float32_cannot_hold_are_not_rounded():
    X = np.random.default_rng(0).standard_normal((3000, 2))
    weights = np.ones(len(X))
    weights[0] = 0.1 * FLOAT32_LIGHTEST
    assert rule_of(KernelSums(X, weights), 1e-2).in_float32 == 0
    assert rule_of(KernelSums(X, 1e-200 * np.ones(len(X))), 1e-2).in_float32 > 0


def test_bounds_of_sums_in_float64_are_not_those_of_float32():
    X = np.random.default_rng(0).standard_normal((2000, 3))
    error = float32_error(3, SUMS_LEAF_SIZE)
    # Pair by pair, and so far away that queries are done one by one: a place for all points.
    for points, query, method in ((X, X[:99], "exact"), (0 * X, X[:99] + 50, "tree")):
        _, lower, upper = kernel_sums(points, query, rtol=1e-2, method=method, return_bounds=True)
        assert np.all(upper - lower < 0.1 * error)


def test_large_sums_use_float32():
    X = np.random.default_rng(0).standard_normal((5000, 6))
    exact = kernel_sums(X, bandwidth=0.5)
    near = kernel_sums(X, bandwidth=0.5, rtol=1e-3, method="tree")
    assert 1e-9 < np.abs(near - exact).max() < 1e-3


def test_points_far_from_the_origin_keep_their_digits():
    """Float32 alone would: 1e7 away from the origin it knows whole numbers only."""
    X = np.random.default_rng(0).standard_normal((5000, 5))
    there = X + 1e7
    exact = kernel_sums(there, bandwidth=0.5)
    near = kernel_sums(there, bandwidth=0.5, rtol=1e-3, method="tree")
    assert np.abs(near - exact).max() < 1e-3


def test_float32_leaves_are_allocated_at_first_use():
    sums = KernelSums(np.random.default_rng(0).standard_normal((2000, 3)))
    sums.log_sums(rtol=1e-2, method="exact")
    sums.log_sums(rtol=1e-6, method="tree")
    assert not sums.reference.float32_panels.size
    few = KernelSums(sums.X[:500])
    few.log_sums(rtol=1e-2)
    assert few._reference is None  # no tree at all
    before = sums.log_sums(rtol=1e-2, method="tree")
    assert sums.reference.float32_panels.size
    sums.set_bandwidth(2.0)
    assert not sums.reference.float32_panels.size
    sums.set_bandwidth(1.0)
    assert np.array_equal(before, sums.log_sums(rtol=1e-2, method="tree"))
