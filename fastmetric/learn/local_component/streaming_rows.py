"""Local Component Analysis of rows that arrive in parts: what is kept of them."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from fastmetric.learn.local_component.batch_em import Batches, expect_rows, mixed
from fastmetric.learn.local_component.covariance_model import LocalModel
from fastmetric.learn.local_component.em import Problem
from fastmetric.learn.rows import Rows, mean_and_covariance


class Seen(NamedTuple):
    """What is kept of the rows seen so far: moments, and a random sample of them."""

    n: int
    mean: np.ndarray  # (D,)
    cov: np.ndarray  # (D, D), divisor n
    local: np.ndarray  # (D, D): the local covariance, without its penalty
    sample: np.ndarray  # (N, D)


def generator(random_state: Any, n: int) -> np.random.RandomState:
    """Return what draws after n rows: a bare seed would draw the same for every part of them."""
    if isinstance(random_state, Integral) and n:
        return np.random.RandomState([int(random_state), n % 2**32])
    return check_random_state(random_state)


def first_seen(
    X: Rows,
    size: int,
    rng: np.random.RandomState,
    moments: tuple[np.ndarray, np.ndarray],
) -> tuple[Seen, np.ndarray]:
    """Return what is kept of rows X (n, D), and each one's place in the sample, or -1.

    `moments` are their mean and covariance; the local covariance is yet that of all of them.
    """
    chosen = np.sort(rng.permutation(len(X))[:size])
    places = np.full(len(X), -1)
    places[chosen] = np.arange(len(chosen))
    return Seen(len(X), *moments, moments[1], X.take(chosen)), places


def joined(seen: Seen, X: Rows, size: int, rng: np.random.RandomState) -> tuple[Seen, np.ndarray]:
    """Return what is kept after new rows X (m, D), and each one's place in the sample, or -1.

    The sample stays one of all rows seen, each as likely to be in it as any other.
    """
    mean, cov = mean_and_covariance(X)
    count = seen.n + len(X)
    share, gap = len(X) / count, mean - seen.mean
    cov = (1 - share) * seen.cov + share * cov + share * (1 - share) * np.outer(gap, gap)
    # Only a sample that holds all rows so far may grow; else new rows would be too likely in it.
    whole = len(seen.sample) == seen.n
    free = min(max(size - len(seen.sample), 0), len(X)) if whole else 0
    source = np.concatenate([np.full(len(seen.sample), -1), np.arange(free)])  # -1: an old row
    # Row number k of all replaces a random one of the N in the sample with probability N / k.
    numbers = seen.n + 1 + np.arange(free, len(X))
    drawn = (rng.random_sample(len(numbers)) * numbers).astype(np.intp)
    replacing = np.flatnonzero(drawn < len(source))
    source[drawn[replacing]] = replacing + free  # of several for one place the last one stays
    new = source >= 0
    sample = np.concatenate([seen.sample, X.block(slice(free))])
    sample[new] = X.take(source[new])
    places = np.full(len(X), -1)
    places[source[new]] = np.flatnonzero(new)
    return Seen(count, seen.mean + share * gap, cov, seen.local, sample), places


def learnt(
    problem: Problem, start: LocalModel, seen: Seen, places: np.ndarray, batches: Batches
) -> tuple[LocalModel, np.ndarray, float]:
    """Return the model after the rows of `problem`, its covariance, and their log-likelihood.

    The rows are taken in batches against the sample, in which they have `places` (m,) or none;
    a sweep is as many rows as the sample has. The likelihood is the mean under the models on
    the way.
    """
    X, local, model, total = problem.X, seen.local, start, 0.0
    for first in range(0, len(X), batches.size):
        rows = slice(first, first + batches.size)
        logs, new = expect_rows(problem, model, X.block(rows), seen.sample, places[rows])
        share = min(1.0, len(logs) / len(seen.sample))
        local = mixed(local, new, batches.discount, share)
        model = problem.model(local)
        total += float(logs.sum())
    return model, local, total / len(X)
