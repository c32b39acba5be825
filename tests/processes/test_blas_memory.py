"""Too little memory for the buffers of BLAS: a MemoryError with the estimate, never a dead process.

A process warms up and forks a child for each limit, which first takes the buffers that are mapped
for good. So the compiled code is there, and a fit in the child needs new buffers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import fastmetric as fm
from fastmetric import _blas_buffers, engine
from tests.processes.test_processes import heard
from tests.processes.test_processes import start as start_process

N, D, JOBS = 2000, 100, 2  # products that OpenBLAS computes with a buffer
MEGABYTES = (1, 20, 40, 80, 100, 160, 210, 600)
HANGS = 10  # seconds after which a child is ended

ESTIMATE = re.compile(r"buffers of BLAS for (one thread|\d threads) take up to \d+ MB more")

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="no limit of the data of a process"
)


def estimators() -> dict[str, Callable[[], object]]:
    """Return makers of estimators whose fits end soon."""
    cheap = dict(random_state=0, n_jobs=JOBS)
    return {
        "NCA.minibatch": lambda: fm.NCA(20, solver="minibatch", init="pca", max_iter=2, **cheap),
        "NCA.lbfgs": lambda: fm.NCA(20, solver="lbfgs", max_iter=2, **cheap),
        "ManifoldParzen": lambda: fm.ManifoldParzen(
            3, n_neighbors=10, noise_variance=0.1, n_jobs=JOBS
        ),
        "LocalComponentAnalysis": lambda: fm.LocalComponentAnalysis(max_iter=2, n_jobs=JOBS),
        "LatentCoincidenceAnalysis": lambda: fm.LatentCoincidenceAnalysis(
            3, max_iter=2, early_stopping=False, **cheap
        ),
    }


def copies() -> list[_blas_buffers._Copy]:
    """Return the loaded copies of OpenBLAS."""
    libraries = ThreadpoolController().lib_controllers
    return [_blas_buffers._Copy(one) for one in libraries if _blas_buffers._has_buffers(one)]


def limit_data(megabytes: int) -> None:
    """Leave the process so much more memory than it has."""
    import resource

    most = _blas_buffers._data_bytes() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def outcome(estimator: object, X: np.ndarray, y: np.ndarray, megabytes: int) -> str:
    """Return what becomes of a fit that no mapped buffer is left for, under a limit."""
    before = dict(vars(estimator))
    with engine.one_thread_blas():  # OpenBLAS makes its own threads anew after a fork
        pass
    held = copies()
    for copy in held:
        while not copy.take():
            pass
    engine._blas._buffers.reset_after_fork()
    limit_data(megabytes)
    try:
        estimator.fit(X, y)
    except MemoryError as error:
        changed = "" if vars(estimator) == before else "; the estimator is another one"
        return f"MemoryError: {error}{changed}"
    return "fitted"


def in_child(task: Callable[[], str]) -> str:
    """Return task() as computed in a forked child, or how the child ended."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(HANGS)
        try:
            os.write(write_end, task().encode())
        except BaseException as error:
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(read_end) as answer:
        return answer.read() or f"the process ended with {status}"


def say_outcomes(limits: tuple[int, ...] = MEGABYTES, checked: bool = True) -> None:
    """Print the outcomes of fits under limits; in a process of its own.

    Not checked: of one estimator, as BLAS would have it without the engine's check.
    """
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    X = rng.standard_normal((N, D)) + np.eye(3, D)[y]
    if not checked:
        _blas_buffers.BlasBuffers.have = lambda *given: None
    found = {}
    for name, make in list(estimators().items())[: None if checked else 1]:
        some = slice(0, 500 if name.startswith("Latent") else N)
        make().fit(X[some], y[some])
        found[name] = {
            str(megabytes): in_child(lambda: outcome(make(), X[some], y[some], megabytes))  # noqa: B023
            for megabytes in limits
        }
    print(json.dumps(found))


def outcomes(given: str = "") -> dict[str, dict[str, str]]:
    """Return the outcomes by name and limit."""
    code = f"import {__name__} as here; here.say_outcomes({given})"
    return heard(start_process(code))


def wrong(found: str) -> bool:
    """Return whether a fit neither ended well nor raised MemoryError and changed nothing."""
    return found != "fitted" and (not found.startswith("MemoryError") or "another one" in found)


def test_a_fit_under_any_limit_is_done_or_raises_a_memory_error():
    for name, by_limit in outcomes().items():
        assert not {limit: found for limit, found in by_limit.items() if wrong(found)}, name
        assert by_limit[str(MEGABYTES[-1])] == "fitted"
        for limit in ("20", "80", "100"):
            assert ESTIMATE.search(by_limit[limit]), name


def test_without_the_check_a_limit_ends_the_process():
    found = outcomes("(40,), checked=False")
    assert any(wrong(one) for by_limit in found.values() for one in by_limit.values())


def test_a_buffer_is_not_larger_than_assumed_and_is_kept():
    code = f"import {__name__} as here; here.say_sizes()"
    said = heard(start_process(code, OPENBLAS_NUM_THREADS="1"))
    for assumed, new, again in said["sizes"]:
        assert all(8 * size >= assumed for size in new[1:])
        assert all(size <= assumed + 2**20 for size in new)
        assert max(again) < 2**20


def say_sizes() -> None:
    """Print the assumed size of a buffer, and by how much four of them grow the process, twice."""
    sizes = []
    for copy in copies():
        grown = []
        for _ in range(2):
            for _ in range(4):
                before = _blas_buffers._data_bytes()
                copy.take()
                grown.append(_blas_buffers._data_bytes() - before)
            copy.give_back()
        sizes.append([copy.buffer_bytes, grown[:4], grown[4:]])
    print(json.dumps({"sizes": sizes}))


def test_buffers_are_taken_once_for_a_number_of_threads_and_again_after_a_fork(monkeypatch):
    taken = []
    take = _blas_buffers._Copy.take
    monkeypatch.setattr(_blas_buffers._Copy, "take", lambda copy: taken.append(copy) or take(copy))
    buffers = _blas_buffers.BlasBuffers()
    libraries = ThreadpoolController().lib_controllers
    buffers.have(2, libraries)
    assert len(taken) == 2 * len(copies())
    buffers.have(1, libraries)
    buffers.have(2, libraries)
    assert len(taken) == 2 * len(copies())
    buffers.reset_after_fork()
    buffers.have(2, libraries)
    assert len(taken) == 4 * len(copies())


def test_a_user_without_buffers_leaves_no_limit_behind(monkeypatch):
    def refuse(*given):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(_blas_buffers.BlasBuffers, "have", refuse)
        with pytest.raises(MemoryError):
            list(engine.run(str, [1, 2], n_jobs=2))
    assert engine._blas._limiter is None
    assert list(engine.run(str, [1, 2], n_jobs=2)) == ["1", "2"]


def test_threads_that_cannot_start_are_a_memory_error(monkeypatch):
    started = []

    class Thread(engine.threading.Thread):
        def start(self):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    monkeypatch.setattr(engine, "_teams", {})
    with monkeypatch.context() as patch:
        patch.setattr(engine.threading, "Thread", Thread)
        with pytest.raises(MemoryError, match=r"does not grant 2 threads.*n_jobs"):
            list(engine.run(str, [1, 2], n_jobs=2))
    started[0].join(HANGS)
    assert not started[0].is_alive()
    assert list(engine.run(str, [1, 2], n_jobs=2)) == ["1", "2"]
