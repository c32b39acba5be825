"""The k smallest numbers seen so far, with the points they belong to: a heap or a sorted list."""

from __future__ import annotations

from fastmetric._jit import jit_in_order


@jit_in_order
def insert(best, found, s, i):
    """Put point i into the sorted list in place of the last; s is less than that."""
    p = best.size - 1
    while p > 0 and best[p - 1] > s:
        best[p], found[p] = best[p - 1], found[p - 1]
        p -= 1
    best[p], found[p] = s, i


@jit_in_order
def sink(best, found, size, s, i):
    """Put point i into a heap (the largest first) of `size` points, in place of the first."""
    p = 0
    while 2 * p + 1 < size:
        child = 2 * p + 1
        if child + 1 < size and best[child + 1] > best[child]:
            child += 1
        if best[child] <= s:
            break
        best[p], found[p] = best[child], found[child]
        p = child
    best[p], found[p] = s, i


@jit_in_order
def sort_heap(best, found):
    """Turn a heap into a sorted list."""
    for last in range(best.size - 1, 0, -1):
        s, i = best[last], found[last]
        best[last], found[last] = best[0], found[0]
        sink(best, found, last, s, i)
