"""A run of `versus` as an aligned table and as JSON, with the machine it ran on."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import math
import os
import platform
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import joblib
from threadpoolctl import threadpool_info

from fastmetric import __file__ as _package
from fastmetric import __version__

_HEADINGS = (
    "case",
    "sizes",
    "peer s",
    "our s",
    "ratio",
    "peer peak",
    "our peak",
    "peer error",
    "our error",
    "bound",
    "objective diff",
    "gradient diff",
    "our pairs/s",
    "compile s",
    "note",
)
_TEXT = {"case", "sizes", "note"}
_ALWAYS = _TEXT | {"peer s", "our s", "ratio"}
_LEGEND = {
    "ratio": "peer seconds / our seconds, each the best of several runs that take turns.",
    "peak": "memory above the data, each in a process of its own.",
    "error": "largest difference from the truth: of log densities over a sample of the queries "
    "(kde), of the mean objective from the exact one (tree).",
    "bound": "what that error is certified not to exceed.",
    "diff": "largest difference, relative to the peer's largest entry.",
    "pairs/s": "ordered pairs of rows per second.",
    "compile": "seconds to compile our code or to load it from the cache, not part of our seconds.",
}


@dataclass
class Row:
    """One line of the table. Memory in bytes; None: not measured."""

    case: str
    sizes: str = ""
    peer_seconds: float | None = None
    our_seconds: float | None = None
    peer_peak: int | None = None
    peer_peak_computed: bool = False
    our_peak: int | None = None
    peer_error: float | None = None
    our_error: float | None = None
    error_bound: float | None = None
    objective_difference: float | None = None
    gradient_difference: float | None = None
    pairs_per_second: float | None = None
    compile_seconds: float | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return how many times as long the peer takes."""
        if self.peer_seconds is None or self.our_seconds is None:
            return None
        return self.peer_seconds / self.our_seconds

    def cells(self) -> list[str]:
        """Return the line as text, in the order of the headings."""
        computed = " computed" if self.peer_peak_computed else ""
        return [
            self.case,
            self.sizes,
            shown(self.peer_seconds, "{:.3g}"),
            shown(self.our_seconds, "{:.3g}"),
            shown(self.ratio, "{:.1f}"),
            _memory(self.peer_peak) + computed,
            _memory(self.our_peak),
            shown(self.peer_error, "{:.1e}"),
            shown(self.our_error, "{:.1e}"),
            shown(self.error_bound, "{:.1e}"),
            shown(self.objective_difference, "{:.1e}"),
            shown(self.gradient_difference, "{:.1e}"),
            shown(self.pairs_per_second, "{:.2e}"),
            shown(self.compile_seconds, "{:.2g}"),
            self.note,
        ]


def table(rows: list[Row]) -> str:
    """Return the rows as an aligned table, with the machine above and the legend below.

    Columns that nobody filled are left out.
    """
    lines = without_empty_columns([_HEADINGS, *(row.cells() for row in rows)], _ALWAYS)
    legend = [
        f"{word}: {meaning}"
        for word, meaning in _LEGEND.items()
        if any(word in heading for heading in lines[0])
    ]
    return "\n".join([machine(), "", aligned(lines, left=_TEXT), "", *legend])


def without_empty_columns(
    lines: Sequence[Sequence[str]], always: Collection[str] = ()
) -> list[tuple[str, ...]]:
    """Return the lines, headings first, without columns of dashes that are not in `always`."""
    columns = [
        column
        for column in zip(*lines, strict=True)
        if column[0] in always or any(cell != "-" for cell in column[1:])
    ]
    return list(zip(*columns, strict=True))


def aligned(lines: Sequence[Sequence[str]], left: Collection[str]) -> str:
    """Return the lines, headings first: columns headed as in `left` to the left, others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    signs = ["<" if heading in left else ">" for heading in lines[0]]
    pattern = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return "\n".join(pattern.format(*line).rstrip() for line in lines)


def as_json(method: str, quick: bool, rows: list[Row]) -> dict[str, Any]:
    """Return everything that was measured, and where."""
    return {
        "method": method,
        "quick": quick,
        "source_digest": _source_digest(),
        "hardware": hardware(),
        "versions": versions(),
        "rows": [_strict(asdict(row) | {"ratio": row.ratio}) for row in rows],
    }


def _source_digest() -> str:
    """Return a digest of the sources of the fastmetric that ran."""
    folder, digest = Path(_package).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _strict(value: Any) -> Any:
    """Return the value with infinite numbers and NaN as text, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {name: _strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def hardware() -> dict[str, Any]:
    """Return the machine: processor, cores, memory, threads of BLAS."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "cpu": _cpu_model(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "usable_cores": joblib.cpu_count(),
        "memory_bytes": _total_memory(),
        "blas": [f"{pool['internal_api']} {pool['version']}" for pool in pools],
        "blas_threads": [pool["num_threads"] for pool in pools],
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that matter to speed."""
    libraries = ("numpy", "scipy", "numba", "llvmlite", "scikit-learn")
    found = {name: importlib.metadata.version(name) for name in libraries}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a peer of one method only
        found["mlpack"] = importlib.metadata.version("mlpack")
    return {"fastmetric": __version__, "python": platform.python_version()} | found


def machine() -> str:
    """Return processor, cores and versions on one line."""
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{_cpu_model()}, {joblib.cpu_count()} cores; {found}"


def shown(value: float | None, pattern: str) -> str:
    """Return a number as text; a dash where there is none."""
    return "-" if value is None else pattern.format(value)


def _memory(size: int | None) -> str:
    """Return a number of bytes as megabytes."""
    return shown(None if size is None else size / 1e6, "{:,.1f} MB")


def _cpu_model() -> str:
    """Return the processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _total_memory() -> int | None:
    """Return the machine's memory in bytes, None if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
