"""How the pairs are cut into blocks: by sizes alone, never by the number of threads.

A block should take 5 to 100 ms: long enough that starting it costs nothing, short enough
that Ctrl-C is answered at once and the threads finish together.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fastmetric.core.pairs.dense_pairs import Block
from fastmetric.core.pairs.pair_tiles import ALIGN

LARGEST_SIDE = 2048  # points on each side of a block
SMALLEST_SIDE = 512
FEWEST = 8  # as many blocks a side, if that leaves them large enough
_WORK = 2.5e8  # pairs times dimensions in a block


def cuts(n: int, d: int) -> list[int]:
    """Return the boundaries 0, ..., n of nearly equal, aligned blocks of n points in R^d."""
    side = min(max(math.sqrt(_WORK / max(d, 1)), SMALLEST_SIDE // 2), LARGEST_SIDE)
    pieces = max(math.ceil(n / side), min(FEWEST, n // SMALLEST_SIDE), 1)
    inner = np.linspace(0, n, pieces + 1)[1:-1] / ALIGN
    return [0, *(int(cut) * ALIGN for cut in inner.round()), n]


def symmetric_blocks(n: int, d: int) -> list[Block]:
    """Return the blocks on and above the diagonal of the n x n pairs."""
    ranges = list(pairwise(cuts(n, d)))
    return [Block(*rows, *cols) for k, rows in enumerate(ranges) for cols in ranges[k:]]


def row_blocks(m: int, n: int, d: int) -> list[Block]:
    """Return the blocks of the m x n pairs, row range by row range."""
    return [
        Block(i0, i1, j0, j1) for i0, i1 in pairwise(cuts(m, d)) for j0, j1 in pairwise(cuts(n, d))
    ]
