"""A call that compiles says so, once."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fastmetric._compile_notice import CompileNotice, compile_notice

CALL = """
import numpy as np
from fastmetric import kernel_sums
for kernel in ("gaussian", "cosine"):
    kernel_sums(np.arange(9.0).reshape(3, 3), kernel=kernel)
    kernel_sums(np.arange(9, dtype="f4").reshape(3, 3), kernel=kernel)
"""


def test_notice_comes_after_the_sum_of_short_compilations(capsys):
    notice = CompileNotice(patience=0.15)
    for _ in range(3):
        with notice, notice:
            time.sleep(0.1)
    assert capsys.readouterr().err.count("compiling") == 1


def test_notice_is_silent_where_compiling_is_short(capsys):
    notice = CompileNotice(patience=30.0)
    with notice:
        pass
    assert capsys.readouterr().err == ""


def test_compiling_goes_on_in_silence_where_no_thread_can_be_started(monkeypatch, capsys):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Timer.start", start)
    with CompileNotice(patience=0.0):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_holds_the_lock_can_compile():
    with compile_notice._lock:
        child = os.fork()
        if child == 0:
            with compile_notice:  # would wait for ever for a lock of the parent's
                os._exit(0)
    deadline = time.monotonic() + 20
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done == (child, 0)


def test_first_call_says_that_it_compiles_and_a_later_one_does_not(tmp_path):
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path))
    said = []
    for _ in range(2):
        found = subprocess.run(
            [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True
        )
        assert found.returncode == 0, found.stderr
        said.append(found.stderr.count("fastmetric: compiling"))
    assert said == [1, 0]
