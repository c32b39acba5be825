"""Class posteriors of new points from all training points [CCK-2], nothing left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from scipy.special import softmax

from fastmetric import engine
from fastmetric.core.pairs import dense_pairs
from fastmetric.core.pairs.pair_tiles import make_points
from fastmetric.core.pairs.partition import row_blocks
from fastmetric.learn.kernel_sums.kernel_table import KERNELS
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.nca.background import Background
from fastmetric.learn.nca.class_weights import Mixture

_CHUNK_VALUES = 2**22  # posteriors held at a time
# Where "auto" looks at trees at all: pairs, and dimensions.
_TREES_FROM, _TREES_TO = 2e8, 12


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

        A row that no class reaches is given the priors.
        """
        add_sums = self._by_trees() if self._trees(len(query)) else self._by_pairs
        background = None
        if self._class_weights.log_background is not None:
            background = Background(self.reference, self._offsets, self.n_jobs)
        step = max(256, _CHUNK_VALUES // self.n_classes)
        for first in range(0, len(query), step):
            rows = slice(first, min(first + step, len(query)))
            logs = add_sums(query[rows], label)
            if background is not None:
                densities = background.log_densities(query[rows])
                logs = np.logaddexp(logs, densities + self._class_weights.log_background)
            logs[np.isneginf(logs).all(axis=1)] = np.log(self._priors)
            posterior = np.zeros((len(logs), self.n_classes))
            posterior[:, self._present] = softmax(logs, axis=1)
            yield rows, posterior

    def _trees(self, m: int) -> bool:
        """Return whether trees are asked for, or may pay for m queries."""
        if self.method == "auto":
            n, d = self.reference.shape
            return n * m >= _TREES_FROM and d <= _TREES_TO
        return self.method == "tree"

    def _by_pairs(self, query: np.ndarray, label: str | None) -> np.ndarray:
        """Return the logs of the weighted class sums (m, C present) over all pairs."""
        weights = np.repeat(self._class_weights.weights, np.diff(self._offsets))
        ref, some = make_points(self.reference, weights), make_points(query)
        blocks = row_blocks(some.size, ref.size, query.shape[1])
        logs = np.full((some.size, len(self._present)), -np.inf)

        def task(block: dense_pairs.Block) -> np.ndarray:
            return dense_pairs.row_class_log_sums(
                some, ref, self._offsets, block, self.mixture.code
            )

        parts = engine.run(task, blocks, n_jobs=self.n_jobs, label=label)
        for block, part in zip(blocks, parts, strict=True):
            rows = slice(block.i0, block.i1)
            logs[rows] = np.logaddexp(logs[rows], part)
        return logs

    def _by_trees(self) -> Callable[[np.ndarray, str | None], np.ndarray]:
        """Return what sums over one tree per class, where that pays."""
        trees = [
            KernelSums(
                self.reference[a:b],
                kernel=self.mixture.kernel,
                bandwidth=KERNELS[self.mixture.kernel].pair_bandwidth,
                n_jobs=self.n_jobs,
            )
            for a, b in pairwise(self._offsets)
        ]
        log_weights = np.log(self._class_weights.weights)

        def log_sums(query: np.ndarray, label: str | None) -> np.ndarray:
            columns = [
                tree.log_sums(
                    query, rtol=self.rtol, method=self.method, bounds=False, label=label
                ).estimate
                for tree in trees
            ]
            return np.stack(columns, axis=1) + log_weights

        return log_sums
