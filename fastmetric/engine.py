"""Runs block tasks on threads and hands their results back in a fixed order.

Compiled blocks release the GIL, so Python threads are all that is needed: no Numba
threading layer, Ctrl-C between blocks, a progress bar that moves, and safety under
concurrent fits, inside worker processes and after a fork.

The same bits at any number of threads: blocks depend on sizes alone, results are consumed
in the order of the blocks, and BLAS runs on one thread while blocks run.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib
from threadpoolctl import ThreadpoolController
from tqdm import tqdm

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_AHEAD = 4  # blocks in flight per thread: bounds the memory of unconsumed results


class _OneThreadBlas:
    """A process-wide, reference-counted limit of BLAS to one thread.

    threadpoolctl's limits are global: two overlapping fits that each set and restore them
    would restore the wrong number. The first one in sets the limit, the last one out lifts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._controller: ThreadpoolController | None = None
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                if self._controller is None:
                    # Compiled products call SciPy's BLAS, which must be loaded to be found.
                    import scipy.linalg.cython_blas  # noqa: F401

                    self._controller = ThreadpoolController()
                self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()

    def reset_after_fork(self) -> None:
        """Forget the parent's users: none of their threads lives on in the child."""
        limited = self._users > 0
        self._lock = threading.Lock()
        self._users = 0
        if limited:
            self._limiter.restore_original_limits()


_blas = _OneThreadBlas()
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _reset_after_fork() -> None:
    """Drop what a forked child cannot use: locks held elsewhere and threads that are gone."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    _blas.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@contextmanager
def one_thread_blas() -> Iterator[None]:
    """Hold BLAS to one thread, in the whole process, until the last user leaves."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


def _in_worker_process() -> bool:
    """Return whether a pool of processes (joblib, multiprocessing, Dask) runs this one."""
    return multiprocessing.parent_process() is not None or "JOBLIB_SPAWNED_PROCESS" in os.environ


def effective_jobs(n_jobs: int | None) -> int:
    """Return the number of threads: None is all cores, but one inside a worker process."""
    if n_jobs is None:
        return 1 if _in_worker_process() else joblib.cpu_count()
    return n_jobs if n_jobs > 0 else max(1, joblib.cpu_count() + 1 + n_jobs)


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return this process's pool of so many threads."""
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="fastmetric")
        return _pools[threads]


def run(
    task: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    n_jobs: int | None = None,
    label: str | None = None,
) -> Iterator[Result]:
    """Yield task(item) for every item, in the order of `items`, computed on `n_jobs` threads.

    With a `label`, a progress bar of that name runs along in a terminal. An exception, Ctrl-C
    included, cancels what has not begun and waits for the blocks under way, a fraction of a
    second.
    """
    threads = min(effective_jobs(n_jobs), len(items))
    # tqdm: None silences the bar where the error stream is no terminal.
    silent = True if label is None else None
    with (
        one_thread_blas(),
        tqdm(total=len(items), desc=label, unit="block", leave=False, disable=silent) as bar,
    ):
        for result in map(task, items) if threads <= 1 else _ordered(threads, task, items):
            yield result
            bar.update()


def _ordered(
    threads: int, task: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield the results of `task` in the order of `items`, a few blocks ahead of the consumer."""
    pool = _pool(threads)
    flying: deque[Future[Result]] = deque()
    try:
        for item in items:
            flying.append(pool.submit(task, item))
            if len(flying) >= _LOOK_AHEAD * threads:
                yield flying[0].result()
                flying.popleft()
        while flying:
            yield flying[0].result()
            flying.popleft()
    finally:
        for future in flying:
            future.cancel()
        wait(flying)
