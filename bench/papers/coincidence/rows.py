"""What Der & Saul published, and the rows of their table with what is measured beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.shared import report
from bench.shared.report import shown

EUCLIDEAN, PRINCIPAL, NEIGHBOURHOOD = "Euclidean", "PCA", "NCA"
COINCIDENCE, CLASSIFIER = "LatentCoincidenceAnalysis", "LatentCoincidenceClassifier"
LARGE_MARGIN = "LMNN (published only)"

_HEADINGS = ("data", "p", "method", "error %", "published", "diff", "seconds", "note")
_TEXT = {"data", "method", "note"}
_INPUTS = "All methods: digits deslanted, leading principal components (MNIST 164, ISOLET 172)."
BY_NEIGHBOURS = (
    "error: of the test rows, by a vote of the 3 nearest training rows; of a tie, the nearest.",
    "±: standard error over random stratified 70/30 splits; without it, one split.",
    "diff: measured - published, in points. seconds: of one fit.",
    f"{_INPUTS[:-1]}; but Euclidean: all features as they are.",
)
BY_CLASS = ("error: of the test rows, by the most probable class. seconds: of one fit.", _INPUTS)

# Table 1: test error in percent by 3-NN.
PUBLISHED = {
    "MNIST": {EUCLIDEAN: 2.83, PRINCIPAL: 2.12, LARGE_MARGIN: 1.34, COINCIDENCE: 1.61},
    "ISOLET": {EUCLIDEAN: 8.98, PRINCIPAL: 8.60, LARGE_MARGIN: 3.40, COINCIDENCE: 3.72},
    "letter": {EUCLIDEAN: 4.73, PRINCIPAL: 4.75, LARGE_MARGIN: 2.58, COINCIDENCE: 2.93},
    "balance-scale": {EUCLIDEAN: 18.82, PRINCIPAL: 18.07, LARGE_MARGIN: 8.98, COINCIDENCE: 4.06},
    "iris": {EUCLIDEAN: 5.33, PRINCIPAL: 5.33, LARGE_MARGIN: 5.33, COINCIDENCE: 2.22},
}


class Row(NamedTuple):
    """One line: a method's errors in percent, one per split, and the seconds of its fits."""

    data: str
    p: int  # 0: no map
    method: str
    errors: Sequence[float] = ()
    seconds: Sequence[float] = ()
    note: str = ""
    published: float | None = None

    @property
    def mean(self) -> float | None:
        """Return the mean error; None if nothing was measured."""
        return float(np.mean(self.errors)) if self.errors else None

    def cells(self) -> list[str]:
        """Return the line as text, in the order of the headings."""
        mean, published = self.mean, self.published
        gap = None if mean is None or published is None else mean - published
        return [
            self.data,
            str(self.p or "-"),
            self.method,
            _mean_and_error(self.errors),
            shown(published, "{:.2f}"),
            shown(gap, "{:+.2f}"),
            shown(float(np.mean(self.seconds)) if self.seconds else None, "{:.1f}"),
            self.note or "-",
        ]


def _mean_and_error(values: Sequence[float]) -> str:
    """Return the mean ± standard error; of a single value, itself; of none, a dash."""
    if len(values) < 2:
        return shown(values[0] if values else None, "{:.2f}")
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.2f} ± {error:.2f}"


def plain(rows: Sequence[Row], legend: Sequence[str]) -> str:
    """Return the rows as an aligned table, with the machine above and a legend below."""
    lines = report.without_empty_columns([_HEADINGS, *(row.cells() for row in rows)])
    table = report.aligned(lines, left=_TEXT)
    return "\n".join([report.machine(), "", table, "", *legend])


def markdown(rows: Sequence[Row]) -> str:
    """Return the table in Markdown."""
    headings, *lines = report.without_empty_columns([_HEADINGS, *(row.cells() for row in rows)])
    sides = [":--" if heading in _TEXT else "--:" for heading in headings]
    table = [f"| {' | '.join(cells)} |" for cells in (headings, sides, *lines)]
    return "\n".join([*table, "", f"Measured on {report.machine()}."])
