"""The record of a run: its iterates, its end, and a valid state at any time.

Every iterative fit of the package keeps its iterates in a `Recorder` and is run by
`Recorder.run`, the only place that handles Ctrl-C and a callback that ends the run. A checkpoint
or another callback belongs in `Recorder.keep`, once for all methods.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

Model = TypeVar("Model")


class Ending(Enum):
    """Why a run ended."""

    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"  # out of iterations, or a line search failed
    STOPPED = "stopped"  # by the callback
    INTERRUPTED = "interrupted"  # by Ctrl-C, after at least one iteration
    COLLAPSED = "collapsed"  # the objective has no maximum


class Iterate(NamedTuple, Generic[Model]):
    """A model of an iteration, with its figures."""

    number: int  # 0: the start
    model: Model
    figures: dict[str, float]  # they include "seconds" since the run began


class Outcome(NamedTuple, Generic[Model]):
    """How a run ended: its last iterate, and the figures of all of them."""

    last: Iterate[Model]
    figures: list[dict[str, float]]
    ending: Ending
    message: str

    @property
    def converged(self) -> bool:
        """Return whether the run converged, or was ended by the callback."""
        return self.ending in (Ending.CONVERGED, Ending.STOPPED)

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C ended the run."""
        return self.ending is Ending.INTERRUPTED

    @property
    def collapsed(self) -> bool:
        """Return whether the objective was found to have no maximum."""
        return self.ending is Ending.COLLAPSED

    def history(self) -> dict[str, np.ndarray]:
        """Return the figures of the iterates, one array each."""
        return _columns(self.figures)

    def delayed(self, seconds: float) -> Outcome[Model]:
        """Return the outcome with `seconds` added to the times of all iterates."""
        figures = [one | {"seconds": one["seconds"] + seconds} for one in self.figures]
        return self._replace(last=self.last._replace(figures=figures[-1]), figures=figures)

    def after(self, earlier: Outcome[Model]) -> Outcome[Model]:
        """Return the outcome of a run that continued from the last model of an earlier one."""
        last = self.last._replace(number=earlier.last.number + self.last.number)
        return self._replace(last=last, figures=earlier.figures + self.figures[1:])


def _columns(figures: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Return an array for each figure."""
    return {name: np.array([one[name] for one in figures]) for name in figures[0]}


class _StopError(Exception):
    """The callback ended the run."""


class Recorder(Generic[Model]):
    """Keeps the last iterate of a run, the figures of all, and the clock."""

    def __init__(
        self,
        on_iterate: Callable[[Iterate[Model]], None] | None = None,
        first: int = 0,
    ) -> None:
        """Call `on_iterate` with every iterate; it ends the run by raising StopIteration.

        `first` is the number of the first iterate: 1 where the start has no figures.
        """
        self.on_iterate, self.began = on_iterate, time.perf_counter()
        self.last: Iterate[Model] | None = None
        self.figures: list[dict[str, float]] = []
        self._number = first

    def keep(self, model: Model, **figures: float) -> None:
        """Keep a model with its figures, and call `on_iterate`."""
        figures["seconds"] = time.perf_counter() - self.began
        self.last = Iterate(self._number, model, figures)
        self.figures.append(figures)
        self._number += 1
        if self.on_iterate is not None:
            try:
                self.on_iterate(self.last)
            except StopIteration:
                raise _StopError from None

    def history(self) -> dict[str, np.ndarray]:
        """Return the figures of the iterates so far, one array each."""
        return _columns(self.figures)

    def run(self, iterations: Callable[[], tuple[Ending, str]]) -> Outcome[Model]:
        """Return the outcome of `iterations`, which keep at least one model here.

        Ctrl-C ends them at the last iterate, and is raised again if that is the start.
        """
        try:
            ending, message = iterations()
        except _StopError:
            ending, message = Ending.STOPPED, "stopped by the callback"
        except KeyboardInterrupt:
            if self.last is None or self.last.number == 0:
                raise
            ending, message = Ending.INTERRUPTED, "interrupted"
        return self.outcome(ending, message)

    def outcome(self, ending: Ending, message: str) -> Outcome[Model]:
        """Return the outcome of a run that has ended."""
        assert self.last is not None, "a run keeps its start"
        return Outcome(self.last, self.figures, ending, message)


def say(name: str, text: str) -> None:
    """Print a line of the estimator `name`: every line of `verbose` but progress bars."""
    print(f"[{name}] {text}", flush=True)


def say_iterate(name: str, iterate: Iterate, note: str = "") -> None:
    """Print a line with the figures of an iterate of the estimator `name`, and a note."""
    figures = "  ".join(f"{key} {value:.6g}" for key, value in iterate.figures.items())
    say(name, f"iteration {iterate.number}: {figures}{note and f'  {note}'}")


def warn_not_converged(text: str, stacklevel: int = 2) -> None:
    """Warn that a fit has not converged; `stacklevel` is that of the user's call, seen from here.

    Every such warning of the package comes from here.
    """
    warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)


def report(outcome: Outcome, name: str, advice: str, stacklevel: int = 3) -> None:
    """Raise KeyboardInterrupt after an interrupted run, and warn of one without convergence.

    Called by the `fit` of an estimator `name`; `stacklevel` is that of the user's call.
    """
    if outcome.interrupted:
        raise KeyboardInterrupt
    if not outcome.converged:
        warn_not_converged(
            f"{name} has not converged after {outcome.last.number} iterations "
            f"({outcome.message}). {advice}",
            stacklevel,
        )
