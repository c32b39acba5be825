"""The E-step of Local Component Analysis against its naive twin: by differences and by products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fastmetric.core.pairs.neighbour_list import list_pairs
from fastmetric.core.pairs.product_weights import few_products, weigh
from fastmetric.learn.chooser import choose
from fastmetric.learn.local_component import e_step, neighbour_list_e_step
from fastmetric.learn.local_component.e_step import (
    Differences,
    Expectation,
    among_all,
    of_rows,
)
from fastmetric.learn.local_component.neighbour_list_e_step import NeighbourList
from fastmetric.learn.local_component.product_e_step import Neighbours, Products
from fastmetric.learn.pair_sums.class_lattices import ClassLattices
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from tests.twins import local_component as naive_local

DTYPES = [np.float64, np.float32]
# Of log sums and of a mean scatter, in units of the kernel.
TOLERANCE = {np.float64: 1e-11, np.float32: 2e-3}


def check(found, W, ref, self_index, q, dtype, slack=1.0):
    """Assert that log sums and scatter are the twin's."""
    weights, log_sums = naive_local.responsibilities(W[:, :q], ref[:, :q], self_index)
    expected = naive_local.scatter(weights, W, ref).astype(float)
    tolerance = TOLERANCE[dtype] * slack
    np.testing.assert_allclose(
        found.log_sums, log_sums.astype(float), atol=tolerance, rtol=tolerance
    )
    size = np.abs(expected).max() or 1.0  # all rows may be equal
    np.testing.assert_allclose(found.scatter / size, expected / size, atol=tolerance)


@hypothesis_settings(max_examples=40)
@given(
    st.integers(2, 150),
    st.integers(1, 24),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.booleans(),
    st.sampled_from(DTYPES),
)
def test_all_rows_match_the_naive_twin(n, D, seed, scale, rounded, dtype):
    rng = np.random.default_rng(seed)
    W = scale * rng.standard_normal((n, D))
    W = (np.round(W) if rounded else W).astype(dtype)
    q = int(rng.integers(1, D + 1))
    check(among_all(W, q), W, W, np.arange(n), q, dtype)


@hypothesis_settings(max_examples=40)
@given(
    st.integers(1, 80),
    st.integers(2, 150),
    st.integers(1, 24),
    st.integers(0, 2**32 - 1),
    st.sampled_from(DTYPES),
)
def test_some_rows_match_the_naive_twin(m, n, D, seed, dtype):
    rng = np.random.default_rng(seed)
    ref = 2 * rng.standard_normal((n, D)).astype(dtype)
    W = 2 * rng.standard_normal((m, D)).astype(dtype)
    self_index = rng.integers(-1, n, m)
    W[self_index >= 0] = ref[self_index[self_index >= 0]]
    q = int(rng.integers(1, D + 1))
    check(of_rows(W, ref, self_index, q), W, ref, self_index, q, dtype)


@pytest.mark.parametrize("D", [3, 20])
@pytest.mark.parametrize("gap", [1e5, 1e6])
def test_distant_clusters_use_differences(gap, D):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((100, D))
    W[::2] += gap
    assert not Products.serves(Neighbours(W, W.shape[1]))
    # Rows are rounded by eps times the gap when they are scaled, in every coordinate.
    slack = 4 * D * np.finfo(float).eps * gap / TOLERANCE[np.float64]
    check(among_all(W, D), W, W, np.arange(100), D, np.float64, max(slack, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_in_many_dimensions_use_products(dtype):
    rng = np.random.default_rng(0)
    W = 1.5 * rng.standard_normal((700, 40)).astype(dtype)
    assert Products.serves(Neighbours(W, W.shape[1]))
    check(among_all(W, 30), W, W, np.arange(700), 30, dtype)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_lattices_match_all_pairs_far_below_the_tolerance_of_a_fit(d, dtype, monkeypatch):
    W = 3 * np.random.default_rng(0).standard_normal((6000, d)).astype(dtype)
    assert isinstance(Differences(Neighbours(W, d)).sums(), ClassLattices)
    found = among_all(W, d)
    monkeypatch.setattr(e_step, "_EXACT_TO", 6000)
    expected = among_all(W, d)
    # A slope may be off by ten times the tolerance of a sum.
    tolerance = 1e-8 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(found.log_sums, expected.log_sums, atol=tolerance)
    scatter = np.abs(expected.scatter).max()
    assert np.abs(found.scatter - expected.scatter).max() <= 10 * tolerance * scatter


@pytest.mark.parametrize("dtype", DTYPES)
def test_tree_matches_all_pairs(dtype, monkeypatch):
    W = 30 * np.random.default_rng(0).standard_normal((6000, 2)).astype(dtype)
    monkeypatch.setattr(e_step, "_EXACT_TO", 6000)
    monkeypatch.setattr(ClassTrees, "cost", lambda class_trees: 0.0)
    assert isinstance(Differences(Neighbours(W, 2)).sums(), ClassTrees)
    found = among_all(W, 2)
    monkeypatch.undo()
    monkeypatch.setattr(e_step, "_EXACT_TO", 6000)
    # One class: no walk over others, whose rows would all underflow.
    assert isinstance(Differences(Neighbours(W * dtype(2**0.5), 2)).sums(), ClassTrees)
    monkeypatch.setattr(ClassTrees, "cost", lambda class_trees: np.inf)
    expected = among_all(W, 2)
    tolerance = 1e-11 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(found.log_sums, expected.log_sums, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(
        found.scatter, expected.scatter, rtol=tolerance, atol=6000 * tolerance
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_few_neighbours_use_the_neighbour_list(dtype):
    rng = np.random.default_rng(0)
    W = 3.5 * rng.standard_normal((400, 24)).astype(dtype)
    W[1] = W[0]
    pairs = choose(Neighbours(W, 20), e_step.WAYS)
    assert isinstance(pairs, NeighbourList)
    found = Expectation(*pairs.log_sums_and_scatter())
    check(found, W, W, np.arange(400), 20, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "side"), [(31, 1), (400, 64), (400, 200)])
def test_neighbour_list_ignores_blocks_and_threads(n, side, dtype, monkeypatch):
    monkeypatch.setattr(neighbour_list_e_step, "_SIDE", side)
    rng = np.random.default_rng(0)
    W = 3 * rng.standard_normal((n, 18)).astype(dtype)
    W[n // 2] = W[-1]  # nearest neighbours in different blocks
    one, three = (
        Expectation(*NeighbourList(Neighbours(W, 16), k).log_sums_and_scatter()) for k in (1, 3)
    )
    check(one, W, W, np.arange(n), 16, dtype)
    np.testing.assert_array_equal(one.log_sums, three.log_sums)
    np.testing.assert_array_equal(one.scatter, three.scatter)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbour_list_holds_pairs_within_reach_of_either_row(dtype):
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((60, 8)).astype(dtype)
    i, j, reach = slice(0, 25), slice(25, 60), dtype(4)
    s = ((Z[i, None] - Z[None, j]) ** 2).sum(axis=2)
    squares, inf = (Z**2).sum(axis=1), np.full(60, np.inf, dtype)
    known = inf[i].copy(), inf[j].copy()
    known[0][:5] = 1  # nearer ones were found elsewhere
    limits = np.minimum(known[0], s.min(axis=1)) + reach, s.min(axis=0) + reach
    starts, cols, found = list_pairs(Z[i] @ Z[j].T, squares[i], squares[j], *known, reach, False)
    rows = np.repeat(np.arange(25), np.diff(starts))
    expected = (s <= limits[0][:, None]) | (s <= limits[1])
    assert 0 < len(cols) < s.size
    np.testing.assert_array_equal(np.transpose([rows, cols]), np.argwhere(expected))
    np.testing.assert_allclose(found, s[rows, cols], atol=100 * np.finfo(dtype).eps)
    for bound, limit in zip(known, limits, strict=True):
        np.testing.assert_allclose(bound, limit - reach, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_few_products_match_the_full_product(dtype, share):
    rng = np.random.default_rng(0)
    weights = (rng.random((37, 1100)) * (rng.random((37, 1100)) < share)).astype(dtype)
    rows = rng.standard_normal((1100, 19)).astype(dtype)
    found, expected = few_products(weights, rows), weights.astype(float) @ rows
    np.testing.assert_allclose(found, expected, atol=1100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_omitted_pairs_are_below_rounding(dtype):
    rng = np.random.default_rng(0)
    Z = 4 * rng.standard_normal((200, 16)).astype(dtype)
    squares = (Z**2).sum(axis=1)
    products, col_sums = Z @ Z.T, np.zeros(200)
    _, row_sums, live = weigh(products, squares, squares, np.arange(200), col_sums)
    assert live == np.count_nonzero(products)
    assert live < 0.5 * products.size  # there was something to leave out
    np.testing.assert_allclose(row_sums, 1, atol=20 * np.finfo(dtype).eps)
    np.testing.assert_allclose(col_sums, products.sum(axis=0, dtype=float), rtol=1e-6)
    assert (products[products > 0] > np.finfo(dtype).eps / 800).all()
