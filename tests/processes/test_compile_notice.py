"""A call that compiles says so, once."""

import os
import subprocess
import sys
import time

from fastmetric._compile_notice import CompileNotice

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
