"""Compiled blocks against their naive twins."""

import platform
import re

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmetric import _jit
from fastmetric.core.kernels import BIWEIGHT, GAUSSIAN
from fastmetric.core.pairs import dense_pairs
from fastmetric.core.pairs.pair_tiles import (
    ALIGN,
    TILE_COLS,
    add_gradient,
    empty_gradient,
    gradient_rows,
    make_points,
)
from fastmetric.core.pairs.partition import row_blocks, symmetric_blocks
from fastmetric.core.vector.register_blocks import (
    ROWS,
    add_weighted_sums,
    make_panels,
    panel_width,
    sq_distances,
)
from tests.twins import pairs as naive

CODES = {"gaussian": GAUSSIAN, "biweight": BIWEIGHT}
EPS = {np.float64: np.finfo(np.float64).eps, np.float32: np.finfo(np.float32).eps}
SIZES = [2, ALIGN, ALIGN + 1, 131, TILE_COLS + 30, 1300]

dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def _classes(n, n_classes, seed=0):
    """Return sorted class numbers and each row's class slice."""
    y = np.sort(np.random.default_rng(seed).integers(0, n_classes, n))
    return y, np.searchsorted(y, y, "left"), np.searchsorted(y, y, "right")


def _points(n, d, dtype, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal((n, d)) * scale).astype(dtype)


def _close(actual, expected, tolerance, size=None):
    """Assert |actual - expected| <= tolerance * size, elementwise."""
    expected = np.asarray(expected)
    size = np.abs(expected) if size is None else size
    assert np.all(np.abs(actual - expected) <= tolerance * size + np.finfo(float).tiny)


def test_close_can_fail():
    with pytest.raises(AssertionError):
        _close(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-9]), 1e-10)


@dtypes
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 33])
def test_register_block_distances(dtype, d):
    query, ref = _points(2 * ROWS, d, dtype), _points(3 * ALIGN, d, dtype, seed=1)
    width = panel_width(np.dtype(dtype))
    tile = np.empty((2 * ROWS, 2 * width), dtype)
    sq_distances(make_panels(query, d, ROWS), 0, make_panels(ref, d, width), width, tile)
    _close(tile, naive.sq_distances(query, ref[width : 3 * width]), (d + 4) * EPS[dtype])


def test_distances_of_distant_clusters_keep_their_digits():
    d = 12
    query = _points(ROWS, d, np.float64) + 1e6
    ref = _points(ALIGN, d, np.float64, seed=1) + 1e6
    tile = np.empty((ROWS, ALIGN))
    width = panel_width(query.dtype)
    sq_distances(make_panels(query, d, ROWS), 0, make_panels(ref, d, width), 0, tile)
    _close(tile, naive.sq_distances(query, ref), 16 * EPS[np.float64])


@dtypes
@pytest.mark.parametrize("vectors", [1, 2, 3, 5])
@pytest.mark.parametrize("transposed", [False, True])
def test_register_block_weighted_sums(dtype, vectors, transposed):
    d = vectors * panel_width(np.dtype(dtype)) // 2
    tile = _points(4 * ROWS, 5 * ROWS, dtype)
    weights = tile.T if transposed else tile
    rows = _points(40, d, dtype, seed=1)
    terms = weights.shape[1]
    out = np.zeros((weights.shape[0], d))
    across, along = (s // tile.itemsize for s in weights.strides)
    for _ in range(2):  # the second adds to what the first left
        add_weighted_sums(tile, across, along, terms, rows, 3, out)
    wide = weights.astype(naive.WIDE)
    size = np.abs(wide) @ np.abs(rows[3 : 3 + terms])
    _close(out / 2, wide @ rows[3 : 3 + terms], terms * EPS[dtype], size)


@dtypes
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
@pytest.mark.parametrize("n", SIZES)
def test_symmetric_sums_equal_the_sums_over_all_pairs(n, kernel, dtype):
    Z = _points(n, 3, dtype, 0.7)
    y, starts, stops = _classes(n, 5)
    own, other = np.zeros(n), np.zeros(n)
    weights = np.random.default_rng(1).random(n).astype(dtype)
    points = make_points(Z, weights)
    for block in symmetric_blocks(n, 3):
        part = dense_pairs.symmetric_sums(points, starts, stops, block, CODES[kernel])
        own[block.i0 : block.i1] += part[0]
        other[block.i0 : block.i1] += part[1]
        own[block.j0 : block.j1] += part[2]
        other[block.j0 : block.j1] += part[3]
    k = naive.kernel(kernel, naive.sq_distances(Z, Z))
    np.fill_diagonal(k, 0)
    k = k * weights
    same = y[:, None] == y
    # A kernel changes by at most 2 sqrt(k) ds (biweight) or k ds; ds <= 8 eps s.
    size = (k + 40 * np.sqrt(k)) if kernel == "biweight" else k * 40
    _close(own, (k * same).sum(1), 8 * EPS[dtype], (size * same).sum(1))
    _close(other, (k * ~same).sum(1), 8 * EPS[dtype], (size * ~same).sum(1))


@dtypes
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
@pytest.mark.parametrize("d", [1, 2, 5, 8, 9, 20])
@pytest.mark.parametrize("n", [2, ALIGN + 1, 700])
def test_symmetric_scatter_equals_the_scatter_of_all_pairs(n, d, kernel, dtype):
    Z = _points(n, d, dtype, 0.5 / np.sqrt(d))
    y, starts, stops = _classes(n, 4)
    rng = np.random.default_rng(2)
    own_weights, other_weights = -rng.random(n).astype(dtype), rng.random(n).astype(dtype)
    weights = rng.random(n).astype(dtype)
    points = make_points(Z, weights)
    gradient = empty_gradient(n, points)
    for block in symmetric_blocks(n, d):
        to_i, to_j = dense_pairs.symmetric_gradient(
            points, starts, stops, own_weights, other_weights, block, CODES[kernel]
        )
        add_gradient(gradient, to_i, slice(block.i0, block.i1))
        add_gradient(gradient, to_j, slice(block.j0, block.j1))
    k = naive.kernel_fall(kernel, naive.sq_distances(Z, Z))
    np.fill_diagonal(k, 0)
    same = y[:, None] == y
    one_way = np.where(same, own_weights[:, None], other_weights[:, None]) * weights
    both_ways = one_way + one_way.T
    expected = naive.pair_scatter(k * both_ways, Z, Z)[0]
    # The biweight's fall is off by up to 2 ds, however small it is.
    rough = k + 2 if kernel == "biweight" else k
    size = np.abs(rough * both_ways).sum(1)[:, None] * np.abs(Z).max() * 2
    _close(gradient_rows(gradient, points), expected, 60 * EPS[dtype], size)


@dtypes
@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0, 1e4])
def test_row_log_sums_and_scatter_hold_at_any_scale(scale, dtype):
    weights = np.random.default_rng(1).uniform(0.1, 1, 600).astype(dtype)
    n, m, d = 600, 130, 4
    Z = _points(n, d, dtype, scale)
    y, starts, stops = _classes(n, 6)
    chosen = np.sort(np.random.default_rng(3).choice(n, m, replace=False))
    where = dense_pairs.QuerySegments(starts[chosen], stops[chosen], chosen)
    ref = make_points(Z, weights)
    query = make_points(Z[chosen], products=ref.products)
    s = naive.sq_distances(Z[chosen], Z)
    s[np.arange(m), chosen] = np.inf
    terms = np.log(weights.astype(naive.WIDE)) - s
    same = y[chosen][:, None] == y
    total = np.array([naive.log_sum_exp(row) for row in terms])
    own_weights, other_weights = -np.ones(m, dtype), np.full(m, 0.5, dtype)
    log_own, log_other = np.full(m, -np.inf), np.full(m, -np.inf)
    to_query, to_ref = empty_gradient(m, query), empty_gradient(n, ref)
    for block in row_blocks(m, n, d):
        rows, cols = slice(block.i0, block.i1), slice(block.j0, block.j1)
        own, other = dense_pairs.row_log_sums(query, ref, where, block, GAUSSIAN)
        log_own[rows] = np.logaddexp(log_own[rows], own)
        log_other[rows] = np.logaddexp(log_other[rows], other)
        to_i, to_j = dense_pairs.row_gradient(
            query, ref, where, (total.astype(dtype), own_weights, other_weights), block, GAUSSIAN
        )
        add_gradient(to_query, to_i, rows)
        add_gradient(to_ref, to_j, cols)
    nearest = np.where(np.isinf(s), 0, s).max()
    tolerance = 10 * EPS[dtype] * (1 + float(nearest))  # of the exponents
    for row in range(m):
        assert abs(log_own[row] - naive.log_sum_exp(terms[row][same[row]])) <= tolerance
        assert abs(log_other[row] - naive.log_sum_exp(terms[row][~same[row]])) <= tolerance
    if tolerance < 0.01:
        weights = np.exp(terms - total[:, None]) * np.where(same, -1, 0.5)
        for actual, expected, size in zip(
            (gradient_rows(to_query, query), gradient_rows(to_ref, ref)),
            naive.pair_scatter(weights, Z[chosen], Z),
            (np.abs(weights).sum(1), np.abs(weights).sum(0)),
            strict=True,
        ):
            _close(actual, expected, 2 * tolerance, size[:, None] * np.abs(Z).max() * 2)


@dtypes
def test_rows_of_a_compact_kernel_equal_their_twin(dtype):
    n, m, d = 700, 130, 3
    Z = _points(n, d, dtype, 0.5)
    Z[0] = 50  # near to nothing
    y, starts, stops = _classes(n, 6)
    rng = np.random.default_rng(3)
    chosen = np.sort(np.append(0, 1 + rng.choice(n - 1, m - 1, replace=False)))
    weights = rng.random(n).astype(dtype)
    ref = make_points(Z, weights)
    query = make_points(Z[chosen], products=ref.products)
    where = dense_pairs.QuerySegments(starts[chosen], stops[chosen], chosen)
    log_totals, own_weights = rng.standard_normal(m).astype(dtype), -rng.random(m).astype(dtype)
    own, other = np.full((2, m), -np.inf)
    to_query, to_ref = empty_gradient(m, query), empty_gradient(n, ref)
    for block in row_blocks(m, n, d):
        rows, cols = slice(block.i0, block.i1), slice(block.j0, block.j1)
        part = dense_pairs.row_log_sums(query, ref, where, block, BIWEIGHT)
        own[rows], other[rows] = np.logaddexp((own[rows], other[rows]), part)
        row_weights = log_totals, own_weights, -own_weights
        to_i, to_j = dense_pairs.row_gradient(query, ref, where, row_weights, block, BIWEIGHT)
        add_gradient(to_query, to_i, rows)
        add_gradient(to_ref, to_j, cols)
    s = naive.sq_distances(Z[chosen], Z)
    s[np.arange(m), chosen] = np.inf
    same = y[chosen][:, None] == y
    k = naive.kernel("biweight", s) * weights
    # A kernel is off by 2 sqrt(k) ds, its fall by 2 ds; ds <= 8 eps within the support.
    for logs, mask in ((own, same), (other, ~same)):
        _close(np.exp(logs), (k * mask).sum(1), 100 * EPS[dtype], 1 + (k * mask).sum(1))
    assert np.isneginf(own[0])
    assert np.isneginf(other[0])
    strength = np.exp(-log_totals.astype(naive.WIDE)) * own_weights
    pair_weights = naive.kernel_fall("biweight", s) * weights * np.where(same, 1, -1)
    pair_weights = pair_weights * strength[:, None]
    for actual, expected in zip(
        (gradient_rows(to_query, query), gradient_rows(to_ref, ref)),
        naive.pair_scatter(pair_weights, Z[chosen], Z),
        strict=True,
    ):
        _close(actual, expected, 1000 * EPS[dtype], np.abs(expected).max())


@dtypes
def test_row_class_log_sums_include_every_point(dtype):
    n, m, d, n_classes = 1300, 70, 3, 40
    ref, query = _points(n, d, dtype, 3.0), _points(m, d, dtype, 3.0, seed=1)
    y, _, _ = _classes(n, n_classes)
    offsets = np.searchsorted(y, np.arange(n_classes + 1))
    log_sums = np.full((m, n_classes), -np.inf)
    for block in row_blocks(m, n, d):
        part = dense_pairs.row_class_log_sums(
            make_points(query), make_points(ref), offsets, block, GAUSSIAN
        )
        rows = slice(block.i0, block.i1)
        log_sums[rows] = np.logaddexp(log_sums[rows], part)
    expected = naive.log_class_sums(query, ref, y, range(n_classes))
    _close(log_sums, expected, 30 * EPS[dtype], 1 + np.abs(expected))


@given(n=st.integers(2, 60_000), d=st.integers(1, 2000))
def test_symmetric_blocks_hold_every_pair_once(n, d):
    blocks = symmetric_blocks(n, d)
    area = sum(
        (b.i1 - b.i0) * (b.j1 - b.j0) if b.i0 != b.j0 else (b.i1 - b.i0) * (b.i1 - b.i0 - 1) // 2
        for b in blocks
    )
    assert area == n * (n - 1) // 2
    assert len(set(blocks)) == len(blocks)
    assert all(b.i0 <= b.j0 and b.i0 % ALIGN == 0 and b.j0 % ALIGN == 0 for b in blocks)


@given(m=st.integers(1, 5000), n=st.integers(1, 60_000), d=st.integers(1, 300))
def test_row_blocks_cover_every_row_and_column(m, n, d):
    blocks = row_blocks(m, n, d)
    assert sum((b.i1 - b.i0) * (b.j1 - b.j0) for b in blocks) == m * n
    assert len(set(blocks)) == len(blocks)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize(
    "function", [dense_pairs._add_kernel, dense_pairs._weigh], ids=lambda f: f.__name__
)
def test_loops_over_pairs_are_vectorised(function):
    # A choice that LLVM leaves inside the loop costs a factor of three, and no wrong digit.
    s = np.full(64, 0.5)
    last = (s.copy(),) if function is dense_pairs._add_kernel else (1.0, s.copy())
    # Compiled anew: code that comes from the cache cannot be read.
    fresh = numba.njit(nogil=True, fastmath=_jit._REASSOCIATED)(function.py_func)
    fresh(GAUSSIAN, s, 1.0, s.copy(), *last)
    assembly = "\n".join(fresh.inspect_asm().values())
    assert len(re.findall(r"\bv?(?:mul|fmadd\w*)pd\b", assembly)) >= 10  # exp's polynomial
