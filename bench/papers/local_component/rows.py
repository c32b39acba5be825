"""What Le Roux & Bach published, and the rows of the tables with what is measured beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.shared import report
from bench.shared.report import shown

_HEADINGS = ("data", "setting", "variant", "measured", "published", "EM iterations", "local", "s")
_TEXT = {"data", "setting", "variant"}

LEGENDS = {
    1: (
        "By how much the map stretches the text more along one direction than across it: 1 is a "
        "rotation. The paper shows a picture.",
    ),
    3: (
        "Clustering accuracy in percent after spectral clustering (10 nearest neighbours, our "
        "choice), mean ± standard error over the runs. The paper has curves, of 100 runs, no "
        "numbers. Its NGCA is left out.",
        "FastICA: the first two components by deflation, with the best of three contrasts.",
        "local: directions that are not Gaussian; there are 2 and the noise.",
    ),
    4: (
        "Clustering accuracy in percent after so many EM iterations; 1 is Manifold Parzen Windows "
        "with the covariance of the data as its kernel's.",
    ),
    5: (
        "Negative log-likelihood of the test rows, nats; mean ± standard error over the splits. "
        "The level depends on the scale of the pixels, the gaps to a single Gaussian do not.",
        "nu was chosen on the validation rows, for every model and split; the search has that of "
        "the Gaussian part without search.",
    ),
    6: (
        "Negative log-likelihood above that of batch EM, nats, of the training rows (each left "
        "out) and of the test rows; published: ± standard error of 20 runs.",
    ),
}

# Figure 5: nats, and their standard errors, for so many training rows.
PUBLISHED_ROWS = 2000
FIGURE_5 = {
    "isotropic": (269.78, 0.18),
    "diagonal": (109.59, 0.56),
    "full": (32.98, 0.35),
    "single Gaussian": (32.27, 0.36),
    "with Gaussian part": (19.09, 0.39),
    "with search": (19.09, 0.39),
}

# Figure 6: by discount and batch size, (train, test) for 1000, 3000 and 6000 neighbours.
_SIZES = (1000, 3000, 6000)
FIGURE_6 = {
    (0.3, 1000): ((6.43, 2.70, -0.10), (2.12, 0.20, 0.65)),
    (0.3, 3000): ((6.58, 2.73, -0.06), (2.11, 0.30, 0.46)),
    (0.3, 6000): ((6.22, 2.21, 0.00), (1.54, -0.75, -0.01)),
    (0.6, 1000): ((6.43, 2.80, -0.17), (2.01, 0.07, 0.15)),
    (0.6, 3000): ((6.54, 2.80, -0.11), (2.01, 0.16, 0.09)),
    (0.6, 6000): ((6.18, 1.98, 0.02), (1.43, -1.07, 0.01)),
}


def published_6(discount: float, batch: int, neighbors: int, part: str) -> float | None:
    """Return the published difference of Figure 6 for "train" or "test" rows; None: not there."""
    if (discount, batch) not in FIGURE_6 or neighbors not in _SIZES:
        return None
    return FIGURE_6[discount, batch][part == "test"][_SIZES.index(neighbors)]


class Row(NamedTuple):
    """One line: what a variant measured, one value per run."""

    data: str
    setting: str
    variant: str
    values: Sequence[float] = ()
    published: float | None = None
    iterations: Sequence[float] = ()
    local: Sequence[float] = ()  # directions
    seconds: Sequence[float] = ()
    note: str = ""
    key: Any = None  # what a picture sorts by

    @property
    def mean(self) -> float:
        """Return the mean of the values."""
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """Return their standard error; 0 of a single one."""
        if len(self.values) < 2:
            return 0.0
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values)))

    def cells(self) -> list[str]:
        """Return the line as text, in the order of the headings."""
        if not self.values:
            return [self.data, self.setting, f"{self.variant} {self.note}".strip(), *["-"] * 5]
        return [
            self.data,
            self.setting,
            self.variant,
            f"{self.mean:.2f}" + (f" ± {self.error:.2f}" if len(self.values) > 1 else ""),
            shown(self.published, "{:.2f}"),
            *(_mean(values, "{:.0f}") for values in (self.iterations, self.local)),
            _mean(self.seconds, "{:.2f}"),
        ]


def _mean(values: Sequence[float], form: str) -> str:
    """Return the mean as text; of nothing, a dash."""
    return form.format(np.mean(values)) if len(values) else "-"


def plain(figure: int, rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table, with the machine above and the legend below."""
    table = report.aligned(_lines(rows), left=_TEXT)
    return "\n".join([report.machine(), "", table, "", *LEGENDS[figure]])


def markdown(figure: int, rows: Sequence[Row]) -> str:
    """Return the same in Markdown."""
    headings, *lines = _lines(rows)
    sides = [":--" if heading in _TEXT else "--:" for heading in headings]
    table = [f"| {' | '.join(cells)} |" for cells in (headings, sides, *lines)]
    legend = [f"* {line}" for line in LEGENDS[figure]]
    return "\n".join([*table, "", *legend, "", f"Measured on {report.machine()}."])


def _lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return headings and rows as text, without columns that nobody filled."""
    return report.without_empty_columns([_HEADINGS, *(tuple(row.cells()) for row in rows)])
