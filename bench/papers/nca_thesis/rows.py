"""What Oneață's thesis published, and the rows of its tables with what is measured beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.shared import report
from bench.shared.report import shown

_HEADINGS = (
    "data",
    "d",
    "variant",
    "NCA rule %",
    "published",
    "diff",
    "1-NN %",
    "published 1-NN",
    "seconds",
    "published s",
    "note",
)
_TEXT = {"data", "variant", "note"}
_LEGEND = (
    "NCA rule: test rows by the class posterior of the fitted variant; 1-NN: by the nearest "
    "training row after the map.",
    "±: standard error over random stratified 70/30 splits; without it, one split, the customary "
    "one of the digits.",
    "diff: measured - published, NCA rule, in points.",
    "seconds: of one fit, code compiled before; published ones on a machine of 2011.",
    "NCA starts from RCA on the small sets unless the row says otherwise, by default on digits.",
)
_LEGEND_OF_DIGITS = (
    "The USPS of the thesis is another set, of 11,000 digits.",
    "The thesis has one figure for mini-batches, shown next to each way of making them; that of "
    "all rows (L-BFGS) is from elsewhere.",
)


class Published(NamedTuple):
    """Accuracies in percent by the NCA rule and by 1-NN, seconds; None: not published."""

    rule: float | None = None
    neighbor: float | None = None
    seconds: float | None = None


def _same(published: Published, *variants: str) -> dict[str, Published]:
    """Return one published figure for several variants."""
    return dict.fromkeys(variants, published)


_MINI_BATCHES = ("mini-batch, random", "mini-batch, farthest", "mini-batch, projection")

# By data set, dimension, variant.
PUBLISHED: dict[tuple[str, int], dict[str, Published]] = {
    ("balance-scale", 4): {
        "stochastic": Published(96.14),
        "NCA-CS-BACK": Published(86.91, 67.0),
    },
    ("ionosphere", 2): {"stochastic": Published(87.08)},
    ("iris", 2): {"stochastic": Published(97.00)},
    ("wine", 2): {"stochastic": Published(97.50)},
    ("wine", 4): {"NCA-CS-BACK": Published(98.89)},
    ("USPS", 5): {
        "stochastic": Published(92.64, 90.68),
        "stochastic + tree": Published(92.67),
        "stochastic + compact": Published(89.85, 87.02),
    }
    | _same(Published(92.37, 91.26), *_MINI_BATCHES),
    ("MNIST", 5): {
        "stochastic": Published(89.35, 86.07, 3250.0),
        "stochastic + tree": Published(88.98),
        "stochastic + compact": Published(86.36, 81.96, 123.0),
    }
    | _same(Published(89.88, 87.52), *_MINI_BATCHES)
    | _same(Published(90.9, 91.1), "all rows (L-BFGS)", "all rows (L-BFGS), alpha"),
}


class Measurement(NamedTuple):
    """One fit: accuracies in percent on the test rows (rule: None if it cannot), seconds."""

    rule: float | None
    neighbor: float
    seconds: float


class Row(NamedTuple):
    """One line of the table: a variant's measurements, one per split, or why there are none."""

    data: str
    d: int  # 0: the data set cannot be had
    variant: str
    measurements: Sequence[Measurement] = ()
    note: str = ""
    Z: np.ndarray | None = None  # test rows of the last split after the map, for pictures

    @property
    def published(self) -> Published:
        """Return what the thesis has for this variant."""
        return PUBLISHED.get((self.data, self.d), {}).get(self.variant, Published())

    def values(self, name: str) -> list[float]:
        """Return the field `name` of all measurements that have it."""
        found = [getattr(one, name) for one in self.measurements]
        return [value for value in found if value is not None]

    def mean(self, name: str) -> float | None:
        """Return the mean of a field over the splits; None if it was not measured."""
        values = self.values(name)
        return float(np.mean(values)) if values else None

    def brief(self) -> str:
        """Return what was measured, or why nothing was, in a few words."""
        if not self.measurements:
            return self.note
        rule, neighbor, seconds = map(self.mean, Measurement._fields)
        return f"{shown(rule, '{:.2f}')} ({neighbor:.2f}) in {seconds:.2f} s"

    def cells(self) -> list[str]:
        """Return the line as text, in the order of the headings."""
        published, rule = self.published, self.mean("rule")
        gap = None if rule is None or published.rule is None else rule - published.rule
        return [
            self.data,
            str(self.d or "-"),
            self.variant,
            _mean_and_error(self.values("rule")),
            shown(published.rule, "{:.2f}"),
            shown(gap, "{:+.2f}"),
            _mean_and_error(self.values("neighbor")),
            shown(published.neighbor, "{:.2f}"),
            shown(self.mean("seconds"), "{:.2f}"),
            shown(published.seconds, "{:.0f}"),
            self.note or "-",
        ]


def plain(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table, with the machine above and the legend below."""
    table = report.aligned(_lines(rows), left=_TEXT)
    return "\n".join([report.machine(), "", table, "", *_legend(rows)])


def markdown(rows: Sequence[Row]) -> str:
    """Return the same in Markdown."""
    headings, *lines = _lines(rows)
    sides = [":--" if heading in _TEXT else "--:" for heading in headings]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    table = [f"| {' | '.join(cells)} |" for cells in (headings, sides, *escaped)]
    legend = [f"* {line}" for line in _legend(rows)]
    return "\n".join([*table, "", *legend, "", f"Measured on {report.machine()}."])


def _lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return headings and rows as text, without columns that nobody filled."""
    return report.without_empty_columns([_HEADINGS, *(row.cells() for row in rows)])


def _legend(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return what the columns mean, and what to know of the published digits if there are any."""
    digits = any(row.data == "USPS" and row.published.rule is not None for row in rows)
    return _LEGEND + (_LEGEND_OF_DIGITS if digits else ())


def _mean_and_error(values: Sequence[float]) -> str:
    """Return the mean ± standard error; of a single value, itself; of none, a dash."""
    if len(values) < 2:
        return shown(values[0] if values else None, "{:.2f}")
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.2f} ± {error:.2f}"
