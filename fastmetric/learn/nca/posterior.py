"""Class posteriors of new points from all training points [CCK-2], nothing left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax

from fastmetric.learn.chooser import choose
from fastmetric.learn.nca.background import Background
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.pair_sums.problem import PairProblem, Queries, Segments
from fastmetric.learn.pair_sums.ways import WAYS

_CHUNK_VALUES = 2**22  # posteriors held at a time


class Posterior:
    """The posterior of every class at any point, by the same densities as the objective's."""

    def __init__(
        self,
        reference: np.ndarray,
        offsets: np.ndarray,
        mixture: Mixture,
        *,
        method: str = "exact",
        rtol: float = 0.0,
        n_jobs: int | None = None,
    ) -> None:
        """Take the projected rows (n, d), class c offsets[c]:offsets[c + 1]; it may be empty."""
        self.n_classes, self.n_jobs, self.mixture = len(offsets) - 1, n_jobs, mixture
        self.reference, self.method, self.rtol = reference, method, rtol
        sizes = np.diff(offsets)
        self._present = np.flatnonzero(sizes)
        self._offsets = np.unique(offsets)
        mixture, sizes = mixture.of_classes(self._present), sizes[self._present]
        self._priors = sizes if mixture.priors is None else mixture.priors
        self._class_weights = mixture.class_weights(sizes, reference.shape[1])

    def __call__(
        self, query: np.ndarray, label: str | None = None
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield ranges of the rows of `query` (m, d) with their posteriors (rows, C), float64.

        The posterior of a row where every class density is zero is the prior.
        """
        if not len(query):
            return
        way = choose(self._pairs(query), WAYS, self.method, self.n_jobs)
        background = None
        if self._class_weights.log_background is not None:
            background = Background(self.reference, self._offsets, self.n_jobs)
        step = max(256, _CHUNK_VALUES // self.n_classes)
        for first in range(0, len(query), step):
            rows = slice(first, min(first + step, len(query)))
            if step < len(query):
                way = way.with_queries(_free(query[rows]))
            logs = way.by_segment(label)
            if background is not None:
                densities = background.log_densities(query[rows])
                logs = np.logaddexp(logs, densities + self._class_weights.log_background)
            logs[np.isneginf(logs).all(axis=1)] = np.log(self._priors)
            posterior = np.zeros((len(logs), self.n_classes))
            posterior[:, self._present] = softmax(logs, axis=1)
            yield rows, posterior

    def _pairs(self, query: np.ndarray) -> PairProblem:
        """Return the pairs to sum: the kernels of every class at the queries (m, d)."""
        weights = self._class_weights
        # With a background, a posterior is not that of the sums alone.
        factors = np.ones(len(weights.own)) if weights.log_background is None else None
        return PairProblem(
            self.reference,
            Segments(self._offsets),
            np.repeat(weights.weights, np.diff(self._offsets)),
            self.mixture.code,
            _free(query),
            rtol=self.rtol,
            per_segment=True,
            factors=factors,
        )


def _free(query: np.ndarray) -> Queries:
    """Return rows (m, d) that are none of the points."""
    none = np.full(len(query), -1)
    return Queries(query, none, np.zeros_like(none))
