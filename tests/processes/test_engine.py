"""The engine: order, cancelling, the limit on BLAS, the number of threads, the bar."""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from threadpoolctl import (
    OpenBLASController,
    ThreadpoolController,
    threadpool_info,
    threadpool_limits,
)

from fastmetric import engine
from fastmetric.learn import rows

SOON = 10.0  # seconds within which a waiting task must be woken; only a failure waits so long


def blas_threads() -> list[int]:
    """Return the number of threads of every BLAS in the process."""
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def in_thread(function):
    """Return function(), called in a thread of its own that is gone afterwards."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def anyone_may_set_blas_threads() -> None:
    """Forget which thread set limits last: threadpoolctl may ignore all others while it lives."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@pytest.fixture
def two_blas_threads():
    """Give every BLAS two threads, so that a limit of one shows on any machine."""
    with engine.one_thread_blas():  # loads every BLAS that the engine limits
        pass
    anyone_may_set_blas_threads()
    limits = threadpool_limits(limits=2, user_api="blas")
    assert set(blas_threads()) == {2}
    anyone_may_set_blas_threads()
    yield
    anyone_may_set_blas_threads()
    limits.restore_original_limits()
    anyone_may_set_blas_threads()


class Gate:
    """A task that notes which items begin, and holds those from `first_held` on."""

    def __init__(self, first_held: int) -> None:
        self.first_held, self.begun, self.ended = first_held, [], []
        self.open = threading.Event()

    def __call__(self, item: int) -> int:
        self.begun.append(item)
        if item >= self.first_held:
            assert self.open.wait(SOON)
        self.ended.append(item)
        return item

    def open_later(self) -> threading.Timer:
        """Open half a second from now: cancelling takes less, and waits for what has begun."""
        timer = threading.Timer(0.5, self.open.set)
        timer.start()
        return timer


# Order


@pytest.mark.parametrize("n_jobs", [2, 5])
def test_results_come_in_the_order_of_the_items(n_jobs):
    items = range(40)
    odd_done = {item: threading.Event() for item in items if item % 2}
    finished = []

    def task(item):
        if item % 2 == 0:  # an even item ends only after the odd one behind it
            assert odd_done[item + 1].wait(SOON)
        finished.append(item)
        if item % 2:
            odd_done[item].set()
        return item * item

    assert list(engine.run(task, items, n_jobs=n_jobs)) == [item * item for item in items]
    assert finished != sorted(finished)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_no_items_give_no_results(n_jobs):
    assert list(engine.run(str, [], n_jobs=n_jobs)) == []


def test_tasks_run_side_by_side_on_so_many_threads():
    together = threading.Barrier(3, timeout=SOON)
    list(engine.run(lambda item: together.wait(), range(6), n_jobs=3))


def test_paused_consumer_delays_the_tasks():
    gate = Gate(first_held=1000)
    results = engine.run(gate, range(1000), n_jobs=2)
    with contextlib.closing(results):
        next(results)
        time.sleep(0.2)
        assert len(gate.begun) < 20
        assert list(results) == list(range(1, 1000))


# Exceptions


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_in_a_task_cancels_what_has_not_begun(n_jobs, two_blas_threads):
    gate = Gate(first_held=1)

    def task(item):
        gate(item)
        if item == 0:
            raise BrokenError("at item 0")

    results = engine.run(task, range(100), n_jobs=n_jobs)
    timer = gate.open_later()
    with pytest.raises(BrokenError, match="at item 0"):
        list(results)
    # Each thread holds one item at most while the others are cancelled.
    may_have_begun = set(range(n_jobs + 1))
    assert set(gate.begun) <= may_have_begun
    assert sorted(gate.ended) == sorted(gate.begun), "blocks under way are waited for"
    assert set(blas_threads()) == {2}
    timer.join()
    time.sleep(0.05)
    assert set(gate.begun) <= may_have_begun


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_of_the_consumer_lifts_the_limit(n_jobs, two_blas_threads):
    begun = []

    def consume():
        for result in engine.run(
            lambda item: begun.append(item) or item, range(500), n_jobs=n_jobs
        ):
            if result == 3:
                raise BrokenError

    with pytest.raises(BrokenError):
        consume()
    assert set(blas_threads()) == {2}
    assert len(begun) < 500


def test_the_engine_works_after_an_exception():
    with pytest.raises(ZeroDivisionError):
        list(engine.run(lambda item: 1 / item, range(10), n_jobs=2))
    assert list(engine.run(str, range(10), n_jobs=2)) == [str(item) for item in range(10)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_closed_generator_cancels_waits_and_lifts_the_limit(n_jobs, two_blas_threads):
    gate = Gate(first_held=1)
    results = engine.run(gate, range(100), n_jobs=n_jobs)
    assert next(results) == 0
    assert set(blas_threads()) == {1}
    timer = gate.open_later()
    results.close()
    assert set(blas_threads()) == {2}
    # Each thread may have taken up one item, and is waited for.
    assert set(gate.begun) <= set(range(n_jobs + 1))
    assert sorted(gate.ended) == sorted(gate.begun)
    timer.join()


def test_dropped_or_unstarted_generator_lifts_the_limit(two_blas_threads):
    begun = []
    never = engine.run(begun.append, range(10), n_jobs=2)
    assert set(blas_threads()) == {2}
    del never
    gc.collect()
    assert begun == []
    dropped = engine.run(begun.append, range(10), n_jobs=2)
    next(dropped)
    del dropped
    gc.collect()
    assert set(blas_threads()) == {2}


# The limit on BLAS


def test_blas_has_one_thread_inside_tasks_and_in_the_consumer(two_blas_threads):
    for inside in engine.run(lambda item: blas_threads(), range(6), n_jobs=2):
        assert set(inside) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_the_limit_ends_with_the_last_of_overlapping_users(two_blas_threads):
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with engine.one_thread_blas():
            first_in.set()
            assert second_in.wait(SOON)
        first_out.set()

    def second():
        assert first_in.wait(SOON)
        with engine.one_thread_blas():
            second_in.set()
            assert first_out.wait(SOON)
            return blas_threads()

    with ThreadPoolExecutor(2) as pool:
        users = [pool.submit(first), pool.submit(second)]
        users[0].result()
        assert set(users[1].result()) == {1}, "the first one out must not lift the limit"
        assert set(blas_threads()) == {2}, "the last one out must, whichever thread it is"


def test_blas_limit_applies_in_a_second_thread(two_blas_threads):
    def user():
        with engine.one_thread_blas():
            return blas_threads()

    assert set(user()) == {1}
    assert set(in_thread(user)) == {1}
    assert set(blas_threads()) == {2}


def test_blas_thread_counts_are_restored_per_library(two_blas_threads):
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    if len(libraries) < 2:
        pytest.skip("one BLAS only")
    libraries[0].set_num_threads(3)
    anyone_may_set_blas_threads()
    before = [library.num_threads for library in libraries]
    assert before[:2] == [3, 2]
    with engine.one_thread_blas(), engine.one_thread_blas():
        assert {library.num_threads for library in libraries} == {1}
    assert [library.num_threads for library in libraries] == before


def test_many_users_in_many_threads_leave_the_original_numbers(two_blas_threads):
    def user(_):
        for _ in range(20):
            assert all(set(inside) == {1} for inside in nested())

    def nested():
        return list(engine.run(lambda item: blas_threads(), range(3), n_jobs=2))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(user, range(4)))
    assert set(blas_threads()) == {2}


def test_the_limit_is_lifted_while_a_traceback_is_kept(
    two_blas_threads,
):
    X = rows.ArrayRows(np.zeros((200_000, 2)), n_jobs=2)  # several row ranges

    def parts_that_do_not_add_up(rows):
        return np.zeros(2 if rows.start == 0 else 3)

    with pytest.raises(ValueError, match="broadcast") as kept:
        X._sum(parts_that_do_not_add_up, X.ranges())
    assert set(blas_threads()) == {2}
    assert kept.tb is not None


# The number of threads


@pytest.mark.parametrize(
    ("n_jobs", "expected"),
    [(None, 8), (1, 1), (3, 3), (20, 20), (-1, 8), (-2, 7), (-8, 1), (-9, 1)],
)
def test_n_jobs_resolves_against_the_cores(n_jobs, expected, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    assert engine.effective_jobs(n_jobs) == expected


def jobs_here(n_jobs: int | None = None) -> int:
    """Return the number of threads as a worker sees it, on a machine of eight cores."""
    cpu_count, joblib.cpu_count = joblib.cpu_count, lambda: 8
    try:
        return engine.effective_jobs(n_jobs)
    finally:
        joblib.cpu_count = cpu_count


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 1), (3, 3), (-1, 8)])
@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_n_jobs_none_is_one_thread_in_joblib_processes(backend, n_jobs, expected):
    parallel = joblib.Parallel(n_jobs=2, backend=backend)
    assert parallel(joblib.delayed(jobs_here)(n_jobs) for _ in range(2)) == [expected] * 2


def test_n_jobs_none_is_all_cores_in_joblib_threads(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    parallel = joblib.Parallel(n_jobs=2, backend="threading")
    assert parallel(joblib.delayed(engine.effective_jobs)(None) for _ in range(2)) == [8] * 2


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_n_jobs_none_is_one_thread_in_multiprocessing_workers(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(jobs_here, [None, 3, -1]) == [1, 3, 8]


# The bar


class Screen(io.StringIO):
    """An error stream that is, or is not, a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_label_draws_a_bar_on_a_terminal_and_wipes_it(n_jobs, monkeypatch):
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    results = engine.run(str, range(20), n_jobs=n_jobs, label="iteration 7")
    next(results)
    assert "iteration 7" in screen.getvalue()
    assert "/20" in screen.getvalue()
    list(results)
    last_line = screen.getvalue().rstrip("\r").rpartition("\r")[2]
    assert last_line.strip() == ""


@pytest.mark.parametrize(("terminal", "label"), [(False, "iteration 7"), (True, None)])
def test_nothing_is_drawn_without_a_terminal_or_without_a_label(terminal, label, monkeypatch):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    list(engine.run(str, range(20), n_jobs=2, label=label))
    assert screen.getvalue() == ""
