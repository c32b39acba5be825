"""Every method of summing over pairs: the naive twin's sums and gradient, for any queries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fastmetric.learn.kernel_table import KERNELS
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.pair_sums.problem import PairProblem, Queries, RowWeights, Segments
from fastmetric.learn.pair_sums.ways import WAYS
from fastmetric.learn.rows import ArrayRows
from tests.twins import pairs as naive

OFFSETS = np.array([0, 70, 130, 220])
KINDS = ["all points", "chosen points", "own queries"]


RTOL = 1e-8  # of ways that serve problems with a tolerance only


def _problem(kernel, kind, per_segment=False, rtol=0.0):
    """Return sums over three segments of points in the plane."""
    rng = np.random.default_rng(0)
    points = 0.6 * rng.standard_normal((220, 2))
    weights = np.array([1.0, 0.25, 0.5])[np.searchsorted(OFFSETS, np.arange(220), "right") - 1]
    queries = None
    if kind == "chosen points":
        queries = np.arange(3, 220, 5)
    elif kind == "own queries":
        rows = 0.6 * rng.standard_normal((50, 2))
        self_index = np.full(50, -1)
        self_index[:10] = np.arange(0, 200, 20)  # these are points, and left out
        rows[:10] = points[self_index[:10]]
        queries = Queries(rows, self_index, np.arange(50) % 3)
    return PairProblem(
        points,
        Segments(OFFSETS),
        weights,
        KERNELS[kernel].code,
        queries,
        rtol=rtol,
        per_segment=per_segment,
    )


def _problem_of(way, kernel, kind, per_segment=False):
    """Return the problem exactly, or within a tolerance, if the way serves no other."""
    problem = _problem(kernel, kind, per_segment)
    return problem if way.serves(problem) else problem._replace(rtol=RTOL)


def _tolerance(problem, exact):
    """Return the tolerance of a problem, beside that of exact sums."""
    return max(exact, 10 * problem.rtol)  # a slope may be off by ten times as much


CASES = [
    pytest.param(way, kernel, kind, id=f"{way.__name__}-{kernel}-{kind}")
    for way in WAYS
    for kernel in ("gaussian", "biweight")
    for kind in KINDS
    if way.serves(_problem_of(way, kernel, kind))
]


def _twin(problem, kernel):
    """Return the squared distances, which pairs count and which are of one segment, (m, n)."""
    asked = problem.asked()
    s = naive.sq_distances(asked.rows, problem.points).astype(float)
    counted = asked.self_index[:, None] != np.arange(problem.n)
    numbers = np.repeat(np.arange(3), np.diff(OFFSETS))
    return s, counted, asked.segments[:, None] == numbers


def _weights(m, log_totals):
    own, other = np.random.default_rng(1).standard_normal((2, m))
    return RowWeights(log_totals, own, other)


@pytest.mark.parametrize(("way", "kernel", "kind"), CASES)
def test_log_sums_equal_the_twin(way, kernel, kind):
    problem = _problem_of(way, kernel, kind)
    s, counted, same = _twin(problem, kernel)
    k = naive.kernel(kernel, s) * counted * problem.weights
    found = way(problem, 1).log_sums()
    for logs, part in ((found.own, same), (found.other, ~same)):
        np.testing.assert_allclose(
            np.exp(logs), (k * part).sum(axis=1), rtol=_tolerance(problem, 1e-11), atol=1e-13
        )


@pytest.mark.parametrize(("way", "kernel", "kind"), CASES)
def test_gradient_is_the_sum_of_weighted_differences(way, kernel, kind):
    problem = _problem_of(way, kernel, kind)
    s, counted, same = _twin(problem, kernel)
    summed = way(problem, 1)
    found = summed.log_sums()
    weights = _weights(problem.m, np.logaddexp(found.own, found.other))
    gradient = summed.gradient(weights)
    by_row = np.where(same, weights.own[:, None], weights.other[:, None])
    fall = naive.kernel_fall(kernel, s) * counted * problem.weights * by_row
    fall = fall / np.exp(weights.log_totals)[:, None]
    asked = problem.asked()
    terms = fall[:, :, None] * (asked.rows[:, None] - problem.points)
    at_points, at_queries = -terms.sum(axis=0), terms.sum(axis=1)
    atol = _tolerance(problem, 1e-11)
    if kind == "own queries":
        np.testing.assert_allclose(gradient.queries, at_queries, atol=atol)
    else:
        assert gradient.queries is None
        np.add.at(at_points, asked.self_index, at_queries)
    np.testing.assert_allclose(gradient.points, at_points, atol=atol)


@pytest.mark.parametrize(("way", "kernel", "kind"), CASES)
def test_segment_sums_match_the_twin(way, kernel, kind):
    problem = _problem_of(way, kernel, kind, per_segment=True)
    s, _, _ = _twin(problem, kernel)
    k = naive.kernel(kernel, s) * problem.weights
    expected = np.stack([k[:, a:b].sum(axis=1) for a, b in pairwise(OFFSETS)], axis=1)
    found = way(problem, 1).by_segment()
    np.testing.assert_allclose(np.exp(found), expected, rtol=_tolerance(problem, 1e-11), atol=1e-13)


@pytest.mark.parametrize(("way", "kernel", "kind"), CASES)
def test_same_bits_on_two_threads(way, kernel, kind):
    problem = _problem_of(way, kernel, kind)
    results = []
    for n_jobs in (1, 2):
        summed = way(problem, n_jobs)
        found = summed.log_sums()
        gradient = summed.gradient(_weights(problem.m, np.zeros(problem.m)))
        results.append((found.own, found.other, gradient.points, summed.by_segment()))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("way", [way for way in WAYS if way.__name__ != "SymmetricPairs"])
def test_other_queries_are_summed_over_the_same_points(way):
    kernel = "gaussian" if way.__name__ == "ClassLattices" else "biweight"
    problem = _problem_of(way, kernel, "own queries", per_segment=True)
    few = Queries(*(part[:20] for part in problem.queries))
    whole = way(problem, 1)
    np.testing.assert_allclose(
        np.exp(whole.with_queries(few).by_segment()), np.exp(whole.by_segment()[:20]), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
@pytest.mark.parametrize("method", ["exact", "tree", "grid"])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("rows", [None, np.array([3, 5, 5, 100])], ids=["all", "some"])
def test_value_alone_has_the_bits_of_an_evaluation(kernel, method, background, rows):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), np.arange(300) % 3
    problem = Objective(
        ArrayRows(X), y, mixture=Mixture(kernel, background=background), method=method, rtol=1e-3
    )
    A = rng.standard_normal((2, 3))
    found, alone = problem.evaluate(A, rows), problem.value(A, rows)
    assert alone == (found.value, found.error_bound)
