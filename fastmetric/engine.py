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
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import joblib
from threadpoolctl import OpenBLASController, ThreadpoolController
from tqdm import tqdm

from fastmetric._blas_buffers import BlasBuffers

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_AHEAD = 4  # blocks in flight per thread: bounds the memory of unconsumed results
_POLL = 0.1  # seconds between two looks whether Ctrl-C was pressed
_PATIENCE = 1.0  # seconds that the end of a block under way is waited for


class _OneThreadBlas:
    """A process-wide limit of BLAS to one thread, for as long as it has users.

    threadpoolctl's limits are global: two overlapping fits that each set and restored them
    would restore the wrong number. The first user sets the limit, the last one lifts it.

    BLAS has its buffers before a user's threads call it: it does not survive to find no memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[object, tuple[int, int]] = {}  # thread, and threads of its team
        self._buffers = BlasBuffers()
        self._controller: ThreadpoolController | None = None
        self._limiter: Any = None

    def enter(self, user: object, team: int) -> None:
        """Add a user with a team of so many threads; set the limit if it is the first.

        MemoryError if BLAS cannot have its buffers; the user is to leave then, too.
        """
        with self._lock:
            self._users[user] = threading.get_ident(), team
            self._controller = self._controller or ThreadpoolController()
            if self._limiter is None:
                _anyone_may_set_blas_threads()
                self._limiter = self._controller.limit(limits=1, user_api="blas")
                _anyone_may_set_blas_threads()
            self._buffers.have(self._callers(), self._controller.lib_controllers)

    def _callers(self) -> int:
        """Return the number of threads that may be in BLAS at once: the users and their teams."""
        callers, teams = zip(*self._users.values(), strict=True)
        return len(set(callers)) + sum(set(teams))  # there is one team of a size

    def leave(self, user: object) -> None:
        """Remove a user, if it ever came in; lift the limit if it was the last."""
        with self._lock:
            self._users.pop(user, None)
            if not self._users and self._limiter is not None:
                _anyone_may_set_blas_threads()
                self._limiter.restore_original_limits()
                _anyone_may_set_blas_threads()
                self._limiter = None

    def reset_after_fork(self) -> None:
        """Forget the parent's users: none of their threads lives on in the child."""
        self._lock = threading.Lock()
        self._users.clear()
        self._buffers.reset_after_fork()
        self.leave(self)


def _anyone_may_set_blas_threads() -> None:
    """Free threadpoolctl's limits from the thread that set them last.

    It ignores all other threads while that one lives; here the last user lifts the limit,
    whichever thread it is.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


class _CtrlC:
    """A handler of SIGINT that records it; `check` then calls the former handler.

    An exception out of a signal strikes between any two instructions: inside a compiled
    function (which turns it into a SystemError), a lock, a destructor (which drops it) or half
    way through setting BLAS's threads. So it is raised between blocks.
    """

    def __init__(self, former: Any) -> None:
        self.former, self.pressed = former, False

    def __call__(self, number: int, frame: Any) -> None:
        self.pressed = True

    def check(self) -> None:
        """Raise KeyboardInterrupt (the former handler's doing) if Ctrl-C was pressed."""
        if self.pressed:
            self.pressed = False
            self.former(signal.SIGINT, None)


@contextmanager
def ctrl_c_between_blocks() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back in the body; yield what raises it at a good moment."""
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield lambda: None
    elif isinstance(former, _CtrlC):
        yield former.check
    else:
        held = _CtrlC(former)
        signal.signal(signal.SIGINT, held)
        try:
            yield held.check
        finally:
            signal.signal(signal.SIGINT, former)
            held.check()


@contextmanager
def ctrl_c_at_once() -> Iterator[None]:
    """Let Ctrl-C through in the body, which is the user's own code and may take its time."""
    held = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not isinstance(held, _CtrlC):
        yield
        return
    held.check()
    signal.signal(signal.SIGINT, held.former)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, held)


class _Job:
    """One call of `run` on a team: its task, its results, and whether it was called off."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self.task = task
        self.finished: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self.called_off = False

    def do(self, number: int, item: Any) -> None:
        """Run the task on one item and report; never raises."""
        result, error = None, None
        if not self.called_off:
            try:
                result = self.task(item)
            except BaseException as raised:
                error = raised
        self.finished.put((number, result, error))


class _Team:
    """Threads that take work from one queue, for as long as the process lives.

    A ThreadPoolExecutor does not suffice because of Ctrl-C: its conditions are Python code, and an
    interrupt between two of their lines leaves a lock held for ever. A SimpleQueue is one
    C call, which either happened or did not.
    """

    def __init__(self, threads: int) -> None:
        self.inbox: SimpleQueue[tuple[_Job, int, Any] | None] = SimpleQueue()
        for number in range(threads):
            thread = threading.Thread(target=self._work, name=f"fastmetric-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                for _ in range(number):
                    self.inbox.put(None)
                raise MemoryError(
                    f"The system does not grant {threads} threads: there is no memory for their "
                    "stacks, or there are too many. Take fewer by n_jobs, or raise the limits of "
                    "the process (ulimit -d, -v and -u; ulimit -s is the size of a stack)."
                ) from error

    def _work(self) -> None:
        """Do what comes in, for ever, or until None comes."""
        while (work := self.inbox.get()) is not None:
            job, number, item = work
            job.do(number, item)
            del work, job, item  # an idle thread must not keep the data alive


_blas = _OneThreadBlas()
_teams: dict[int, _Team] = {}
_teams_lock = threading.Lock()


def _reset_after_fork() -> None:
    """Drop what a forked child cannot use: locks held elsewhere and threads that are gone."""
    global _teams_lock
    _teams_lock = threading.Lock()
    _teams.clear()
    _blas.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@contextmanager
def one_thread_blas(team: int = 0) -> Iterator[None]:
    """Hold BLAS to one thread, in the whole process, until the last user leaves.

    MemoryError if there is no memory for the buffers of BLAS in this thread and in a team of so
    many threads.
    """
    user = object()
    with ctrl_c_between_blocks():
        try:
            _blas.enter(user, team)
            yield
        finally:
            _blas.leave(user)


def _in_worker_process() -> bool:
    """Return whether a pool of processes (joblib, multiprocessing, Dask) runs this one."""
    return multiprocessing.parent_process() is not None


def effective_jobs(n_jobs: int | None) -> int:
    """Return the number of threads: None is all cores, but one inside a worker process."""
    if n_jobs is None:
        return 1 if _in_worker_process() else joblib.cpu_count()
    return n_jobs if n_jobs > 0 else max(1, joblib.cpu_count() + 1 + n_jobs)


def _team(threads: int) -> _Team:
    """Return this process's team of so many threads."""
    with _teams_lock:
        if threads not in _teams:
            _teams[threads] = _Team(threads)
        return _teams[threads]


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
    threads = max(1, min(effective_jobs(n_jobs), len(items)))
    with (
        ctrl_c_between_blocks() as check,
        one_thread_blas(threads),
        _bar(len(items), label) as step,
    ):
        for result in _ordered(threads, task, items, check):
            yield result
            step()


def for_each(
    task: Callable[[Item], object],
    items: Sequence[Item],
    *,
    n_jobs: int | None = None,
    label: str | None = None,
) -> None:
    """Do task(item) for every item as `run` does, for what it writes."""
    for _ in run(task, items, n_jobs=n_jobs, label=label):
        pass


def ranges(n: int, step: int) -> list[slice]:
    """Return the ranges of `step` items each, the last one shorter, that make up n items."""
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


@contextmanager
def _bar(total: int, label: str | None) -> Iterator[Callable[[], Any]]:
    """Yield what moves a progress bar on; without a label, nothing is drawn.

    Without a label tqdm is not touched: its lock does not survive a fork.
    """
    if label is None:
        yield lambda: None
        return
    # None silences the bar where the error stream is no terminal.
    with tqdm(total=total, desc=label, unit="block", leave=False, disable=None) as bar:
        yield bar.update


def _ordered(
    threads: int,
    task: Callable[[Item], Result],
    items: Sequence[Item],
    check: Callable[[], None],
) -> Iterator[Result]:
    """Yield the results of `task` in the order of `items`, a few blocks ahead of the consumer."""
    team, job = _team(threads), _Job(task)
    waiting: dict[int, Result] = {}  # finished before their turn
    begun = reported = 0
    try:
        for turn in range(len(items)):
            while begun < min(len(items), turn + _LOOK_AHEAD * threads):
                begun += 1
                team.inbox.put((job, begun - 1, items[begun - 1]))
            while turn not in waiting:
                check()
                try:
                    number, result, error = job.finished.get(timeout=_POLL)
                except Empty:
                    continue
                reported += 1
                if error is not None:
                    raise error
                waiting[number] = result
            yield waiting.pop(turn)
    finally:
        job.called_off = True
        _wait_for(job, begun - reported)


def _wait_for(job: _Job, reports: int) -> None:
    """Wait until the blocks under way have ended; those not begun report at once."""
    try:
        for _ in range(reports):
            # A block that is still being compiled may take long: it is left to itself.
            job.finished.get(timeout=_PATIENCE)
    except Empty:
        pass
