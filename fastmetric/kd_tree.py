"""The public k-d tree: nearest neighbours and balls, exact, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from fastmetric import _validate
from fastmetric._typing import Vector
from fastmetric.core.tree.balanced_tree import Tree
from fastmetric.core.tree.nearest_search import count_within, points_within
from fastmetric.learn.tree_building import LEAF_SIZE, build_tree
from fastmetric.learn.tree_search import in_blocks, nearest_points, searchable

Result = TypeVar("Result")


class KDTree:
    """A k-d tree: the nearest neighbours of points, and all points of a ball.

    The arguments and results of scikit-learn's ``KDTree``, for Euclidean distances. Results are
    exact and the same bits on any number of threads. Among equal distances any point may come
    first, but always the same.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The points. They are copied. float32 stays float32; everything else becomes float64.
    leaf_size : int, default=64
        Nodes of more points than that are split. A matter of speed alone; less than 16 counts
        as 16.
    n_jobs : int, default=None
        Number of threads, -1 for all cores. None: all cores, but one inside a worker process
        of joblib, multiprocessing or Dask.

    Attributes
    ----------
    data : ndarray of shape (n_samples, n_features)
        The points in the order they were given, put together anew at every access.
    tree_ : fastmetric.core.tree.balanced_tree.Tree
        Nodes and points as arrays, the points in the order of the tree.
    leaf_size : int
        As given.
    n_jobs : int or None
        As given.

    See Also
    --------
    kernel_sums : Sums of kernels over all points.
    sklearn.neighbors.KDTree : The same by one thread, for other metrics.
    scipy.spatial.KDTree : The same, of SciPy.

    Notes
    -----
    Squared distances are sums of squared differences in the precision of the points. They must
    not overflow: coordinates beyond about 1e153 (1e18 in float32) are refused. Distances below
    1e-154 (1e-19 in float32) lose digits, because their squares do.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import KDTree
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [9.0, 9.0]])
    >>> tree = KDTree(X)
    >>> dist, ind = tree.query([[0.0, 1.0]], k=2)
    >>> ind
    array([[0, 2]])
    >>> dist
    array([[1., 3.]])
    >>> tree.query_radius([[0.0, 0.0], [9.0, 8.0]], r=[4.0, 1.0], count_only=True)
    array([3, 1])
    """

    leaf_size: int
    n_jobs: int | None
    tree_: Tree

    def __init__(
        self, X: ArrayLike, leaf_size: int = LEAF_SIZE, *, n_jobs: int | None = None
    ) -> None:
        X = _points(X, _validate.FLOATS)
        self.leaf_size = _validate.integer("leaf_size", leaf_size, 1)
        self.n_jobs = _validate.jobs(n_jobs)
        self.tree_ = build_tree(X, self.leaf_size, self.n_jobs)
        self._search = searchable(self.tree_)

    @property
    def data(self) -> np.ndarray:
        """The points (n, d) in the order they were given."""
        rows = np.empty_like(self.tree_.rows)
        rows[self.tree_.order] = self.tree_.rows
        return rows

    @overload
    def query(
        self,
        X: ArrayLike,
        k: int = 1,
        return_distance: Literal[True] = True,
        dualtree: bool = False,
        breadth_first: bool = False,
        sort_results: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def query(
        self,
        X: ArrayLike,
        k: int = 1,
        *,
        return_distance: Literal[False],
        dualtree: bool = False,
        breadth_first: bool = False,
        sort_results: bool = True,
    ) -> np.ndarray: ...

    @overload
    def query(
        self,
        X: ArrayLike,
        k: int,
        return_distance: Literal[False],
        dualtree: bool = False,
        breadth_first: bool = False,
        sort_results: bool = True,
    ) -> np.ndarray: ...

    def query(
        self,
        X: ArrayLike,
        k: int = 1,
        return_distance: bool = True,
        dualtree: bool = False,
        breadth_first: bool = False,
        sort_results: bool = True,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Find the k nearest points of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The queries, converted to the precision of the tree.
        k : int, default=1
            Number of neighbours, at most the number of points.
        return_distance : bool, default=True
            Whether to return the distances, too.
        dualtree, breadth_first : bool
            Without effect; scikit-learn has them.
        sort_results : bool, default=True
            Without effect: neighbours are always sorted by distance.

        Returns
        -------
        dist : ndarray of shape (n_queries, k)
            Distances to the neighbours, the nearest first. Only if `return_distance`.
        ind : ndarray of shape (n_queries, k)
            The neighbours' row numbers in the data.
        """
        flags = (return_distance, dualtree, breadth_first, sort_results)
        names = ("return_distance", "dualtree", "breadth_first", "sort_results")
        for name, value in zip(names, flags, strict=True):
            _validate.flag(name, value)
        X = self._queries(X)
        k = _validate.integer("k", k, 1, len(self.tree_.rows))
        dist, ind = nearest_points(self._search, X, k, self.n_jobs)
        return (dist, ind) if return_distance else ind

    @overload
    def query_radius(
        self,
        X: ArrayLike,
        r: float | Vector,
        return_distance: Literal[False] = False,
        count_only: bool = False,
        sort_results: Literal[False] = False,
    ) -> np.ndarray: ...

    @overload
    def query_radius(
        self,
        X: ArrayLike,
        r: float | Vector,
        return_distance: Literal[True],
        count_only: Literal[False] = False,
        sort_results: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def query_radius(
        self,
        X: ArrayLike,
        r: float | Vector,
        return_distance: bool = False,
        count_only: bool = False,
        sort_results: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Find all points within a distance r of each query, those at r included.

        A point counts if its distance, as `query` returns it, is at most `r`.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The queries, converted to the precision of the tree.
        r : float or array-like of shape (n_queries,)
            Radius, one for all or one each, converted to the precision of the tree.
        return_distance : bool, default=False
            Whether to return the distances, too.
        count_only : bool, default=False
            Whether to return the numbers of points only.
        sort_results : bool, default=False
            Whether to sort the points of a query by their distance, which
            `return_distance` must ask for.

        Returns
        -------
        count : ndarray of shape (n_queries,)
            Number of points. Only if `count_only`.
        ind : ndarray of shape (n_queries,), of ndarrays
            The row numbers of each query's points. Not if `count_only`.
        dist : ndarray of shape (n_queries,), of ndarrays
            Their distances. Only if `return_distance`.
        """
        _check_options(return_distance, count_only, sort_results)
        X = self._queries(X)
        sq_radii = _sq_radii(_radii(r, X))
        if count_only:
            return self._counts(X, sq_radii)
        ind, dist = np.empty(len(X), object), np.empty(len(X), object)

        def block(which: np.ndarray) -> tuple[np.ndarray, ...]:
            ends, found, sq_dist = points_within(
                self._search, X[which], sq_radii[which], bool(return_distance), bool(sort_results)
            )
            return which, ends, found, np.sqrt(sq_dist)

        for which, ends, found, distances in self._blocks(X, block):
            _hand_out(ind, which, ends, found)
            if return_distance:
                _hand_out(dist, which, ends, distances)
        return (ind, dist) if return_distance else ind

    def _counts(self, X: np.ndarray, sq_radii: np.ndarray) -> np.ndarray:
        """Return the numbers of points (m,) in the balls."""
        counts = np.empty(len(X), np.int64)

        def block(which: np.ndarray) -> None:
            counts[which] = count_within(self._search, X[which], sq_radii[which])

        for _ in self._blocks(X, block):
            pass
        return counts

    def _queries(self, X: Any) -> np.ndarray:
        """Return the queries (m, d), checked, in the precision of the tree."""
        rows = self.tree_.rows
        X = _points(X, rows.dtype)
        if X.shape[1] != rows.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} features; the tree was built on {rows.shape[1]}. "
                "Give queries with the same features as the points of the tree."
            )
        return X

    def _blocks(self, X: np.ndarray, block: Callable[[np.ndarray], Result]) -> Iterator[Result]:
        """Yield block(numbers of queries) for all queries (m, d), neighbours together."""
        return in_blocks(self.tree_, X, block, self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the points. The same tree is built of them again.

        Compiled loops do not check the row numbers in a tree, so none is taken from a file.
        """
        return {"data": self.data, "leaf_size": self.leaf_size, "n_jobs": self.n_jobs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["data"], state["leaf_size"], n_jobs=state["n_jobs"])  # type: ignore[misc]


def _hand_out(results: np.ndarray, which: np.ndarray, ends: np.ndarray, values: np.ndarray) -> None:
    """Cut `values` at `ends` (m,) and make the pieces the results number `which` (m,)."""
    start = 0
    for number, end in zip(which.tolist(), ends.tolist(), strict=True):
        results[number] = values[start:end]
        start = end


# Validation


def _points(X: Any, dtype: Any) -> np.ndarray:
    """Return points (n, d), finite numbers whose squared distances do not overflow."""
    return _validate.squarable(_validate.float_array(X, "X", dtype), "X")


def _radii(r: Any, X: np.ndarray) -> np.ndarray:
    """Return the radii (m,) of the queries X (m, d), in their precision."""
    wanted = f"a number of at least 0 or one for each of the {len(X)} queries"
    number = _validate.real(r)
    if number is None:
        _validate.refuse_unusable("r", r, wanted)
    try:
        given = np.asarray(r if number is None else number)
    except ValueError as error:  # nested lists of different lengths
        raise ValueError(f"r should be {wanted}; got {_validate.shown(r)}.") from error
    if given.dtype.kind not in "fiu" or given.shape not in ((), (1,), (len(X),)):
        raise ValueError(
            f"r should be {wanted}; got {_validate.shown(r)}, {given.dtype} of shape {given.shape}."
        )
    if not np.all(given >= 0):  # NaN among them
        first = r if number is not None else given[~(given >= 0)][0]
        raise ValueError(f"r should not be negative or NaN; got {_validate.shown(first)}.")
    with np.errstate(over="ignore"):  # all points are in an infinite ball
        return np.broadcast_to(given.astype(X.dtype), len(X))


def _sq_radii(r: np.ndarray) -> np.ndarray:
    """Return the largest squared distances whose rounded root is at most r (m,)."""
    # Rounding is monotone and r * r is within two steps of the bound, on either side.
    with np.errstate(over="ignore", under="ignore"):
        sq = r * r
        while np.any(beyond := np.sqrt(sq) > r):
            sq = np.where(beyond, np.nextafter(sq, r.dtype.type(0)), sq)
        while True:
            above = np.nextafter(sq, r.dtype.type(np.inf))
            still = (np.sqrt(above) <= r) & (above > sq)
            if not np.any(still):
                return sq
            sq = np.where(still, above, sq)


def _check_options(return_distance: bool, count_only: bool, sort_results: bool) -> None:
    """Raise if the options of a radius search are no flags, or exclude each other."""
    _validate.flag("return_distance", return_distance)
    _validate.flag("count_only", count_only)
    _validate.flag("sort_results", sort_results)
    if count_only and return_distance:
        raise ValueError("count_only and return_distance exclude each other; choose one of them.")
    if sort_results and not return_distance:
        raise ValueError("sort_results=True needs return_distance=True.")
