"""One line on stderr where compiling takes time: silence would look like a hang."""

from __future__ import annotations

import multiprocessing
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
                self._timer = threading.Timer(max(0.0, self._left), self._say)
                self._timer.daemon = True
                self._timer.start()

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
