"""The k-d tree against its naive twins, scikit-learn's and SciPy's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from sklearn.neighbors import KDTree as PeerTree

from fastmetric.core.vector.panel_scan import UNIT
from fastmetric.kd_tree import KDTree, _sq_radii
from tests.twins import kd_tree as naive

DTYPES = (np.float64, np.float32)
EPS = {np.float64: np.finfo(np.float64).eps, np.float32: np.finfo(np.float32).eps}

dtypes = pytest.mark.parametrize("dtype", DTYPES)


def _normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


@st.composite
def clouds(draw, max_n=200, max_features=6):
    """Draw points and queries: duplicates, lattices, constant columns, outliers, all scales."""
    n, m = draw(st.integers(1, max_n)), draw(st.integers(1, 20))
    d = draw(st.integers(1, max_features))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n + m, d))
    if draw(st.booleans()):  # a lattice: ties and duplicates
        X = np.round(X)
    if draw(st.booleans()):
        X[:, draw(st.integers(0, d - 1))] = 3.0
    if draw(st.booleans()):
        X[draw(st.integers(0, n - 1))] *= 1e3
    if draw(st.booleans()):
        X += 100.0
    X = (X * 10.0 ** draw(st.integers(-8, 8))).astype(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):  # queries among the points
        X[n:] = X[rng.integers(0, n, m)]
    return X[:n], X[n:]


# Nearest neighbours


def _is_nearest(X, query, k, dist, ind):
    """Assert that dist and ind are k nearest neighbours, bit by bit."""
    all_dist = np.sqrt(naive.neighbours_sq_distances(X, query))
    assert dist.dtype == X.dtype
    assert np.array_equal(dist, naive.neighbours_nearest(X, query, k))
    assert np.array_equal(dist, np.take_along_axis(all_dist, ind, axis=1))
    assert np.all(np.diff(np.sort(ind, axis=1), axis=1) > 0)  # no point twice


def test_is_nearest_can_fail():
    X = _normal(10, 2)
    dist, ind = KDTree(X).query(X, 3)
    _is_nearest(X, X, 3, dist, ind)
    for wrong in (np.roll(ind, 1, axis=1), np.roll(ind, 1, axis=0)):
        with pytest.raises(AssertionError):
            _is_nearest(X, X, 3, dist, wrong)
    with pytest.raises(AssertionError):
        _is_nearest(X, X, 3, np.nextafter(dist, 9), ind)


@given(clouds(), st.integers(1, 60), st.data())
def test_neighbours_match_the_naive_twin_bit_for_bit(cloud, leaf_size, data):
    X, query = cloud
    k = data.draw(st.integers(1, len(X)))
    dist, ind = KDTree(X, leaf_size).query(query, k)
    _is_nearest(X, query, k, dist, ind)


@dtypes
@pytest.mark.parametrize("d", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("k", [1, 7, 97, 500])  # a sorted list, and a heap
def test_neighbours_match_scipy_and_scikit_learn(dtype, d, k):
    X, query = _normal(500, d).astype(dtype), _normal(60, d, seed=1).astype(dtype)
    dist, ind = KDTree(X, 16).query(query, k)
    for peer in (cKDTree(X).query(query, k), PeerTree(X).query(query, k)):
        peer_dist, peer_ind = (np.reshape(part, (60, k)) for part in peer)
        # The root halves the error of a sum of d squares; peers sum in float64.
        assert np.all(np.abs(dist - peer_dist) <= (d + 4) / 2 * EPS[dtype] * peer_dist)
        if dtype == np.float64:
            assert np.array_equal(ind, peer_ind)


@dtypes
def test_many_queries_are_answered_in_order(dtype):
    X, query = _normal(3000, 3).astype(dtype), _normal(9000, 3, seed=1).astype(dtype)
    dist, ind = KDTree(X).query(query, 5)
    few = np.random.default_rng(2).integers(0, len(query), 200)
    _is_nearest(X, query[few], 5, dist[few], ind[few])


@pytest.mark.parametrize("n", [1, 2, UNIT - 1, UNIT, UNIT + 1, 1000])
def test_all_points_equal(n):
    X = np.full((n, 2), 0.1)
    dist, ind = KDTree(X).query(X[:3], n)
    assert np.all(dist == 0)
    assert np.array_equal(np.sort(ind, axis=1), np.tile(np.arange(n), (len(ind), 1)))
    assert np.all(KDTree(X).query_radius(X, 0.0, count_only=True) == n)


def test_query_without_distances_returns_indices_only():
    X = _normal(50, 3)
    ind = KDTree(X).query(X, 4, return_distance=False)
    assert np.array_equal(ind, KDTree(X).query(X, 4)[1])


def test_scikit_learns_unused_arguments_have_no_effect():
    X = _normal(50, 3)
    expected = KDTree(X).query(X, 4)
    other = KDTree(X).query(X, 4, dualtree=True, breadth_first=True, sort_results=False)
    assert all(map(np.array_equal, other, expected))


# Balls


@given(clouds(), st.integers(1, 60), st.data())
def test_radius_query_returns_exactly_the_points_within(cloud, leaf_size, data):
    X, query = cloud
    all_dist = np.sqrt(naive.neighbours_sq_distances(X, query))
    # Radii that are distances: the points on the sphere belong to the ball.
    pick = [data.draw(st.integers(0, len(X) - 1)) for _ in query]
    r = all_dist[np.arange(len(query)), pick]
    tree = KDTree(X, leaf_size)
    ind, dist = tree.query_radius(query, r, return_distance=True, sort_results=True)
    expected = naive.neighbours_within(X, query, r)
    for i, alone in enumerate(tree.query_radius(query, r)):
        assert np.array_equal(np.sort(ind[i]), expected[i])
        assert np.array_equal(np.sort(alone), expected[i])
        assert np.array_equal(dist[i], all_dist[i, ind[i]])
        assert np.all(np.diff(dist[i]) >= 0)
    counts = tree.query_radius(query, r, count_only=True)
    assert np.array_equal(counts, [len(one) for one in expected])


@pytest.mark.parametrize("d", [1, 3, 8])
def test_radius_query_matches_scikit_learn(d):
    X, query = _normal(2000, d), _normal(300, d, seed=1)
    tree, peer = KDTree(X), PeerTree(X)
    for r in (0.0, 0.3, 2.0, 100.0, np.linspace(0, 3, 300)):
        ind, dist = tree.query_radius(query, r, return_distance=True)
        peer_ind = peer.query_radius(query, r)
        assert ind.dtype == dist.dtype == peer_ind.dtype == object
        assert ind.shape == dist.shape == peer_ind.shape
        assert all(
            np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(ind, peer_ind, strict=True)
        )
        counts = tree.query_radius(query, r, count_only=True)
        assert counts.dtype == np.int64
        assert np.array_equal(counts, peer.query_radius(query, r, count_only=True))


def test_many_radius_queries_are_answered_in_order():
    X, query = _normal(3000, 3), _normal(9000, 3, seed=1)
    r = np.random.default_rng(2).uniform(0, 0.5, len(query))
    ind = KDTree(X).query_radius(query, r)
    counts = KDTree(X).query_radius(query, r, count_only=True)
    few = np.arange(0, len(query), 45)
    expected = naive.neighbours_within(X, query[few], r[few])
    assert all(np.array_equal(np.sort(ind[i]), rows) for i, rows in zip(few, expected, strict=True))
    assert np.array_equal(counts, [len(rows) for rows in ind])


def test_infinite_radius_returns_all_points():
    X = _normal(100, 2)
    for r in (np.inf, 1e300):
        assert np.all(KDTree(X).query_radius(X, r, count_only=True) == 100)
        assert np.all(KDTree(X.astype(np.float32)).query_radius(X, r, count_only=True) == 100)


@dtypes
@given(st.floats(-320, 320))
def test_squared_radius_is_the_largest_with_root_within(dtype, exponent):
    with np.errstate(over="ignore", under="ignore"):
        r = np.array([10.0**exponent if exponent < 308 else np.inf]).astype(dtype)
        sq = _sq_radii(r)
        above = np.nextafter(sq, dtype(np.inf))
    assert sq.dtype == dtype
    assert np.sqrt(sq) <= r
    assert np.sqrt(above) > r or sq == np.inf


# The tree


def _is_a_tree(tree, X, leaf_size):
    """Assert what every tree of the points X keeps."""
    n = len(X)
    assert np.array_equal(np.sort(tree.order), np.arange(n))
    assert np.array_equal(tree.rows, X[tree.order])
    assert (tree.starts[0], tree.stops[0]) == (0, n)
    assert tree.lower.dtype == tree.upper.dtype == X.dtype
    for node, first in enumerate(tree.children):
        start, stop = tree.starts[node], tree.stops[node]
        rows = tree.rows[start:stop]
        assert np.array_equal(tree.lower[node], rows.min(axis=0))
        assert np.array_equal(tree.upper[node], rows.max(axis=0))
        assert start % UNIT == 0
        if first < 0:
            assert stop - start <= max(leaf_size, UNIT)
            continue
        assert node < first < len(tree.children) - 1
        assert (tree.starts[first], tree.stops[first + 1]) == (start, stop)
        assert tree.stops[first] == tree.starts[first + 1]
        assert start < tree.stops[first] < stop
        # Cut along one side: no coordinate before the cut exceeds one after it.
        assert np.any(tree.upper[first] <= tree.lower[first + 1])
    assert sorted([0, *_with_brothers(tree)]) == list(range(len(tree.children)))


def _with_brothers(tree):
    """Return all children."""
    firsts = tree.children[tree.children >= 0].tolist()
    return [*firsts, *(first + 1 for first in firsts)]


@given(clouds(), st.integers(1, 60))
def test_tree_invariants_hold(cloud, leaf_size):
    _is_a_tree(KDTree(cloud[0], leaf_size).tree_, cloud[0], leaf_size)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_tree_built_by_several_tasks_is_valid(n_jobs):
    X = np.round(_normal(50_000, 2), 1)
    _is_a_tree(KDTree(X, 400, n_jobs=n_jobs).tree_, X, 400)


def test_is_a_tree_can_fail():
    X = _normal(200, 2)
    tree = KDTree(X, 32).tree_
    _is_a_tree(tree, X, 32)
    for name in tree._fields:
        wrong = getattr(tree, name).copy()
        wrong[1] += 1
        with pytest.raises(AssertionError):
            _is_a_tree(tree._replace(**{name: wrong}), X, 32)
    with pytest.raises(AssertionError):
        _is_a_tree(tree, X, 16)


@dtypes
def test_data_are_the_rows_in_the_order_given(dtype):
    X = _normal(300, 4).astype(dtype)
    tree = KDTree(X)
    assert np.array_equal(tree.data, X)
    assert tree.data.dtype == dtype
    before = tree.query(X[:5], 3)
    expected = X[:5].copy()
    X[:] = 0  # the tree has a copy
    assert all(map(np.array_equal, tree.query(expected, 3), before))


# Threads, processes, memory layouts


def _answers(tree, query):
    """Return everything that a tree says, as a list of arrays."""
    ind, dist = tree.query_radius(query, 0.05, return_distance=True, sort_results=True)
    counts = tree.query_radius(query, 0.05, count_only=True)
    return [*tree.query(query, 6), counts, np.concatenate(ind), np.concatenate(dist)]


@dtypes
def test_the_same_bits_on_any_number_of_threads(dtype):
    X = np.round(_normal(25_000, 2), 2).astype(dtype)  # ties
    one = KDTree(X, n_jobs=1)
    for n_jobs in (2, 5):
        other = KDTree(X, n_jobs=n_jobs)
        assert all(map(np.array_equal, other.tree_, one.tree_))
        assert all(map(np.array_equal, _answers(other, X), _answers(one, X)))


def test_single_query_is_answered_like_one_of_many():
    X = np.round(_normal(10_000, 2), 1)  # ties
    tree = KDTree(X)
    _, ind = tree.query(X, 9)
    for i in range(0, len(X), 1111):
        assert np.array_equal(tree.query(X[i : i + 1], 9)[1][0], ind[i])


@dtypes
def test_pickled_trees_answer_alike(dtype):
    X = _normal(1000, 3).astype(dtype)
    tree = KDTree(X, 20, n_jobs=1)
    state = pickle.dumps(tree)
    assert len(state) < 2 * X.nbytes + tree.tree_.order.nbytes  # the points are in it once
    copy = pickle.loads(state)
    assert (copy.leaf_size, copy.n_jobs) == (20, 1)
    assert all(map(np.array_equal, copy.tree_, tree.tree_))
    assert all(map(np.array_equal, _answers(copy, X), _answers(tree, X)))


def test_read_only_trees_answer_alike():
    tree = KDTree(_normal(100, 2))
    copy = pickle.loads(pickle.dumps(tree))
    for array in copy.tree_:  # what a worker process of joblib may be given
        array.setflags(write=False)
    copy.__setstate__(copy.__getstate__())
    assert all(map(np.array_equal, copy.query(tree.data, 3), tree.query(tree.data, 3)))


def _layouts(X):
    """Return X read-only, in Fortran's order, strided, and with negative strides."""
    read_only = X.copy()
    read_only.setflags(write=False)
    strided = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    return [read_only, np.asfortranarray(X), strided, X[::-1].copy()[::-1]]


@dtypes
def test_memory_layout_does_not_matter(dtype):
    X, query = _normal(200, 3).astype(dtype), _normal(3000, 3, seed=1).astype(dtype)
    expected = _answers(KDTree(X), query)
    for points, queries in zip(_layouts(X), _layouts(query), strict=True):
        assert all(map(np.array_equal, _answers(KDTree(points), queries), expected))
    assert np.array_equal(KDTree(X.tolist()).query(query.tolist(), 6)[1], expected[1])


def test_precision_is_that_of_the_tree():
    X = _normal(100, 2)
    single, double = KDTree(X.astype(np.float32)), KDTree(X)
    assert single.query(X)[0].dtype == np.float32
    assert single.query_radius(X, 0.3, return_distance=True)[1][0].dtype == np.float32
    assert double.query(X.astype(np.float32))[0].dtype == np.float64
    assert KDTree([[1], [2]]).query([[1]])[0].dtype == np.float64


# Bad input


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(5), "2D"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((3, 0)), "0 feature"),
        (np.zeros((2, 2, 2)), "dim 3"),
        ([[0.0, np.nan]], "NaN"),
        ([[0.0, np.inf]], "infinity"),
        ([["1", "2"]], "strings"),
        (np.array([[1j, 2.0]]), "Complex"),
        (scipy.sparse.eye_array(3).tocsr(), "[Ss]parse"),
        (None, "2D"),
        ([[1e200, 0.0]], "overflow in float64. Scale the data down.$"),
        (np.array([[0, -1e19]], np.float32), "overflow in float32.*float64"),
    ],
)
def test_bad_points_are_refused(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        KDTree(X)
    tree = KDTree(np.zeros((3, 2), np.float32 if "float32" in message else np.float64))
    for ask in (tree.query, lambda query: tree.query_radius(query, 1.0)):
        with pytest.raises((ValueError, TypeError), match=message):
            ask(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(leaf_size=0), "leaf_size"),
        (dict(leaf_size=2.5), "leaf_size"),
        (dict(leaf_size="many"), "leaf_size"),
        (dict(n_jobs=0), "n_jobs"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        KDTree(_normal(10, 2), **arguments)


@pytest.mark.parametrize("k", [0, -1, 11, 1.5, True, "2", None])
def test_bad_numbers_of_neighbours_are_refused(k):
    X = _normal(10, 2)
    with pytest.raises(ValueError, match="k should be an integer, from 1 to 10; got"):
        KDTree(X).query(X, k)


def test_queries_with_other_features_are_refused():
    tree = KDTree(_normal(10, 2))
    for ask in (tree.query, lambda X: tree.query_radius(X, 1.0)):
        with pytest.raises(ValueError, match="X has 3 features; the tree was built on 2"):
            ask(_normal(10, 3))


@pytest.mark.parametrize("r", [-1.0, np.nan, [1.0, 2.0], "1", None, True, [[1.0]] * 10, 1j])
def test_bad_radii_are_refused(r):
    X = _normal(10, 2)
    with pytest.raises(ValueError, match="r should"):
        KDTree(X).query_radius(X, r)


def test_contradictory_arguments_are_refused():
    X = _normal(10, 2)
    with pytest.raises(ValueError, match="count_only"):
        KDTree(X).query_radius(X, 1.0, return_distance=True, count_only=True)
    with pytest.raises(ValueError, match="sort_results"):
        KDTree(X).query_radius(X, 1.0, sort_results=True)
