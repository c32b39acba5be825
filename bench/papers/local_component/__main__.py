"""The experiments of N. Le Roux and F. Bach, Local Component Analysis, 2011: published, measured.

python -m bench.papers.local_component [--quick] [--figure N ...] [--runs N] [--out FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.papers import command
from bench.papers.local_component import measure, pictures
from bench.papers.local_component import rows as records
from bench.papers.local_component.data import CLUSTERS, TEXT, text_points, usps_parts
from bench.papers.local_component.measure import Setting
from bench.papers.local_component.rows import Row, published_6
from bench.shared.setup import UnavailableError


class Plan(NamedTuple):
    """How often, and how much."""

    runs: dict[int, int]  # of a figure
    points: int  # of the text
    noise: dict[str, tuple[int, ...]]  # dimensions
    iterations: tuple[int, ...]  # of EM
    parts: tuple[int, int, int]  # rows of USPS for Figure 5
    batch_parts: tuple[int, int, int]  # for Figure 6
    settings: tuple[Setting, ...]


def _settings(scale: int) -> tuple[Setting, ...]:
    """Return those of Figure 6 in units of `scale` rows, and the paper's advice, B = 100."""
    grid = [Setting(g, b * scale, n * scale) for g in (0.3, 0.6) for b in (1, 3) for n in (1, 3, 6)]
    return (*grid, Setting(0.6, scale // 10, 3 * scale))


FULL = Plan(
    runs={1: 1, 3: 20, 4: 20, 5: 20, 6: 3},
    points=6000,
    noise={
        "two Gaussians": (2, 5, 10, 20),
        "two circles": (1, 2, 5, 10),
        "five Gaussians": (2, 5, 10),
    },
    iterations=(1, 2, 5, 10, 20),
    parts=(2000, 1000, 3000),
    batch_parts=(6000, 1000, 2298),
    settings=_settings(1000),
)
QUICK = FULL._replace(
    runs={1: 1, 3: 2, 4: 2, 5: 1, 6: 1},
    points=2500,
    noise={"two Gaussians": (10,), "two circles": (2, 5), "five Gaussians": (5,)},
    iterations=(1, 5, 20),
    parts=(600, 300, 1000),
    batch_parts=(1200, 300, 800),
    settings=(Setting(0.6, 200, 600), Setting(0.6, 60, 600)),
)

_SHEAR = np.array([[1.0, 0.0], [0.6, 0.35]])  # neither method may depend on it


def figure_1(plan: Plan, out: Path) -> Iterator[Row]:
    """A text under a linear map, and what PCA and Local Component Analysis make of it."""
    letters = text_points(plan.points)
    panels = []
    for name, model in {"PCA": measure.pca(), "local": measure.local()}.items():
        points, distortion = measure.straightened(model, letters @ _SHEAR, letters)
        title = "Local Component Analysis" if name == "local" else name
        panels.append((f"{title}: one side stretched {distortion:.1f} times the other", points))
        yield Row(f"“{TEXT}”", f"{plan.points} points", title, [distortion])
    pictures.text(out / "le-roux-text.png", panels)


def figure_3(plan: Plan, out: Path) -> Iterator[Row]:
    """Spectral clustering after five ways to prepare the rows."""
    yield from _drawn(plan, out, measure.METHODS, 3, "Spectral clustering with noise added")


def figure_4(plan: Plan, out: Path) -> Iterator[Row]:
    """The same after so many iterations of EM."""
    ways = {f"{k} EM": measure.by_local(max_iter=k, tol=0.0) for k in plan.iterations}
    ways["converged"] = measure.by_local()
    yield from _drawn(plan, out, ways, 4, "… after so many iterations of EM")


def _drawn(
    plan: Plan, out: Path, ways: dict[str, Callable], figure: int, title: str
) -> Iterator[Row]:
    """Yield the rows of all problems, then draw the curves."""
    rows = []
    for data in CLUSTERS:
        for noise in plan.noise[data]:
            for name, score in ways.items():
                rows.append(measure.clustering(data, noise, name, score, plan.runs[figure]))
                yield rows[-1]
    runs = f"mean of {plan.runs[figure]} runs"
    pictures.curves(out / f"le-roux-clustering-{figure}.png", rows, f"{title}: {runs}")


def figure_5(plan: Plan, out: Path) -> Iterator[Row]:
    """Densities of USPS digits."""
    splits = [usps_parts(plan.parts, seed) for seed in range(plan.runs[5])]
    rows = []
    for variant in measure.DENSITIES:
        rows.append(measure.density(variant, splits))
        yield rows[-1]
    pictures.densities(out / "le-roux-densities.png", rows)


def figure_6(plan: Plan, out: Path) -> Iterator[Row]:
    """What smaller batches and neighbourhoods lose against batch EM."""
    splits = [usps_parts(plan.batch_parts, seed) for seed in range(plan.runs[6])]
    nu = measure.nu_of(splits[0])
    fits = [measure.losses(parts, nu, None, 0) for parts in splits]
    base = np.array([fit[:2] for fit in fits])
    for k, part in enumerate(("train", "test")):
        _, _, sweeps, seconds = zip(*fits, strict=True)
        level = list(base[:, k])
        yield Row(part, f"nu = {nu:.2g}", "batch EM: level", level, None, sweeps, (), seconds)
    rows = []
    for setting in plan.settings:
        fits = [measure.losses(p, nu, setting, seed) for seed, p in enumerate(splits)]
        above = np.array([fit[:2] for fit in fits]) - base
        _, _, sweeps, seconds = zip(*fits, strict=True)
        for k, part in enumerate(("train", "test")):
            known = published_6(*setting, part) if plan.batch_parts == FULL.batch_parts else None
            row = Row(part, str(setting), "above batch EM", list(above[:, k]), known, key=setting)
            rows.append(row._replace(iterations=sweeps, seconds=seconds))
            yield rows[-1]
    pictures.batches(out / "le-roux-batches.png", rows)


FIGURES = {1: figure_1, 3: figure_3, 4: figure_4, 5: figure_5, 6: figure_6}


def main(arguments: list[str] | None = None) -> None:
    """Run the figures, print a table and save the picture of each."""
    parser = command.options_of("local_component", __doc__, "small and few: minutes")
    parser.add_argument("--figure", type=int, action="append", choices=FIGURES, metavar="N")
    parser.add_argument("--runs", type=int, help="instead of the plan's, for every figure")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    if options.runs:
        plan = plan._replace(runs=dict.fromkeys(FIGURES, options.runs))

    def tables(number: int) -> tuple[str, str, str]:
        rows = list(_printed(partial(FIGURES[number], plan, options.out)))
        plain = records.plain(number, rows)
        return f"Figure {number}", plain, records.markdown(number, rows)

    command.run(options.figure or FIGURES, tables, options.markdown)


def _printed(rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Yield the rows, each printed at once; one with the reason, if the data are not available."""
    try:
        for row in rows():
            print("  " + "  ".join(row.cells()), file=sys.stderr, flush=True)
            yield row
    except UnavailableError as error:
        yield Row("", "", "", note=f"not run: {error}")


if __name__ == "__main__":
    main()
