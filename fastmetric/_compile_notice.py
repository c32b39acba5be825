"""One line on stderr where compiling takes time: silence would look like a hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from types import TracebackType

_PATIENCE = 2.0  # seconds of compiling in a process before it is mentioned


class CompileNotice:
    """A context around every compilation, which says so once, after some seconds of them in all."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        """Take the seconds."""
        self._left, self._depth, self._began = patience, 0, 0.0
        self._timer: threading.Timer | None = None
        self._said = multiprocessing.parent_process() is not None  # workers leave it to others
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Start the clock."""
        with self._lock:
            self._depth += 1
            if self._depth == 1 and not self._said:
                self._began = time.monotonic()
                timer = threading.Timer(max(0.0, self._left), self._say)
                timer.daemon = True
                with contextlib.suppress(RuntimeError):  # no thread to be had: then in silence
                    timer.start()
                    self._timer = timer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the clock."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._left -= time.monotonic() - self._began

    def hush(self) -> None:
        """Say nothing in this process: the caller does."""
        with self._lock:
            self._said = True

    def forget(self) -> None:
        """Start anew, in silence, in a forked child: a thread that compiles is its parent's."""
        self._lock, self._timer = threading.Lock(), None
        self._depth, self._said = 0, True

    def _say(self) -> None:
        """Write the line."""
        with self._lock:
            if self._said or self._depth == 0:
                return
            self._said = True
        print(
            "fastmetric: compiling what this call needs, which takes some 5 to 20 seconds once; "
            "later runs load it. fastmetric.warmup() compiles everything beforehand.",
            file=sys.stderr,
            flush=True,
        )


compile_notice = CompileNotice()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compile_notice.forget)
