"""Class posteriors of new points from all training points [CCK-2], nothing left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax

from fastmetric import engine
from fastmetric.core import pairs
from fastmetric.core.blocks import row_blocks
from fastmetric.core.tiles import make_points

_CHUNK_VALUES = 2**22  # posteriors held at a time


def class_posteriors(
    query: np.ndarray,
    reference: np.ndarray,
    offsets: np.ndarray,
    n_jobs: int | None = None,
    label: str | None = None,
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield ranges of query rows with their class posteriors (rows, C), float64.

    Class c is the slice offsets[c]:offsets[c + 1] of `reference` (n, d); classic NCA: the
    share of each class in sum_j exp(-|q - r_j|^2).
    """
    n_classes = len(offsets) - 1
    ref = make_points(reference)
    step = max(256, _CHUNK_VALUES // n_classes)
    for first in range(0, len(query), step):
        rows = slice(first, min(first + step, len(query)))
        some = make_points(query[rows])

        def task(block: pairs.Block, some=some) -> np.ndarray:
            return pairs.row_class_log_sums(some, ref, offsets, block)

        blocks = row_blocks(some.size, ref.size, query.shape[1])
        log_sums = np.full((some.size, n_classes), -np.inf)
        for block, part in zip(
            blocks, engine.run(task, blocks, n_jobs=n_jobs, label=label), strict=True
        ):
            part_of = slice(block.i0, block.i1)
            log_sums[part_of] = np.logaddexp(log_sums[part_of], part)
        yield rows, softmax(log_sums, axis=1)
