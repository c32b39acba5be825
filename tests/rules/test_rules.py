"""The rules of the house. Every rule is a function that finds violations, and shown to find one."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fastmetric"

MOST_LINES = 300  # of code: docstrings and comments do not make a file long
MOST_MEGABYTES = 60  # one evaluation at n = 8,000 (n x n numbers would be 512)


def sources() -> dict[str, str]:
    """Return the text of every module of the package, by its path below the root."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every name that is read, imported, taken from a module, or given to a keyword."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg, node.value.lineno


# Numba's options

_COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "jit_module"}
_COMPILERS |= {"jitclass", "generated_jit", "register_jitable", "jit_options"}
_OPTIONS = {"fastmath", "nogil", "nopython", "forceobj", "looplift", "boundscheck", "error_model"}


def options_outside_jit(path: str, text: str) -> list[str]:
    """Return where a module other than _jit.py compiles by itself or names an option."""
    if path == "fastmetric/_jit.py":
        return []
    tree = ast.parse(text)
    ours = own_decorators(tree)
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module == "fastmetric._jit":
            node.names = []
        elif isinstance(node, ast.Name) and node.id in ours:
            node.id = "ours"
    hits = [(name, line) for name, line in named(tree) if name in _COMPILERS | _OPTIONS]
    hits += [("stencil", line) for line in _stencils_of_numba(tree)]
    return [f"{path}:{line}: {name} belongs in _jit.py" for name, line in hits]


def _stencils_of_numba(tree: ast.Module) -> Iterator[int]:
    """Yield where Numba's `stencil` is named; the word is also that of a point's taps."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "numba"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba":
            yield from (alias.lineno for alias in node.names if alias.name == "stencil")
        elif isinstance(node, ast.Attribute) and node.attr == "stencil":
            yield from [node.lineno] * (isinstance(node.value, ast.Name) and node.value.id in names)


def own_decorators(tree: ast.Module) -> set[str]:
    """Return the names that a module has from _jit.py: its `jit` is not Numba's."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "fastmetric._jit"
        for alias in node.names
    }


def threads_of_numba(path: str, text: str) -> list[str]:
    """Return where a module asks for Numba's own threads: prange, or an option `parallel`."""
    tree = ast.parse(text)
    hits = [(name, line) for name, line in named(tree) if name in ("prange", "parallel")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "parallel":  # key of an options dict
            hits.append((node.value, node.lineno))
    return [f"{path}:{line}: {name}; threads are the engine's" for name, line in hits]


# Imports

_OF_PROCESSES = {"asyncio", "concurrent", "multiprocessing", "os", "threading"}
_CORE_MAY_IMPORT = {"numpy", "numba", "llvmlite"} | (sys.stdlib_module_names - _OF_PROCESSES)
_CORE_MAY_IMPORT_HERE = ("fastmetric._jit", "fastmetric.core")


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the full names that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            yield from ((f"{module}{joint}{alias.name}", node.lineno) for alias in node.names)


def imports_above_the_core(path: str, text: str) -> list[str]:
    """Return where a module of the core imports what it must not know."""
    if not path.startswith("fastmetric/core/"):
        return []
    return [
        f"{path}:{line}: the core must not import {name}"
        for name, line in imported(ast.parse(text))
        if name.split(".")[0] not in _CORE_MAY_IMPORT
        and not any(f"{name}.".startswith(f"{known}.") for known in _CORE_MAY_IMPORT_HERE)
    ]


# Docstrings and length


def missing_docstrings(path: str, text: str) -> list[str]:
    """Return the functions, methods and classes without a docstring.

    Not magic methods, whose name says it, nor functions inside functions, which are a step
    of the one around them, nor overloads, which are types of a function that has one.
    """
    missing = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                magic = child.name.startswith("__") and child.name.endswith("__")
                overload = "overload" in map(ast.unparse, child.decorator_list)
                if not magic and not overload and ast.get_docstring(child) is None:
                    missing.append(f"{path}:{child.lineno}: {child.name} has no docstring")
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child)

    visit(ast.parse(text))
    return missing


_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
_NO_CODE |= {tokenize.INDENT, tokenize.DEDENT}


def code_lines(text: str) -> int:
    """Return the number of lines that hold code: no docstring, no comment, not blank."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def too_long(path: str, text: str) -> list[str]:
    """Return whether a file has more lines of code than one idea needs."""
    lines = code_lines(text)
    return [f"{path}: {lines} lines of code; split it"] if lines > MOST_LINES else []


# Every rule, with sources that keep it and sources that break it.

Rule = Callable[[str, str], list[str]]

KEPT: dict[Rule, list[tuple[str, str]]] = {
    options_outside_jit: [
        ("fastmetric/_jit.py", "import numba\nf = numba.njit(nogil=True, fastmath=True)"),
        ("fastmetric/core/a.py", "from fastmetric._jit import jit\n@jit\ndef f(): pass"),
        ("fastmetric/core/a.py", "from numba import types\nfrom numba.extending import intrinsic"),
        ("fastmetric/core/a.py", "def f(taps): return taps.stencil"),
    ],
    threads_of_numba: [("fastmetric/core/a.py", '"""Not prange."""\nfor i in range(3): pass')],
    imports_above_the_core: [
        ("fastmetric/core/a.py", "import numpy as np\nfrom fastmetric._jit import jit"),
        ("fastmetric/core/a.py", "from fastmetric.core import exp\nfrom fastmetric import _jit"),
        (
            "fastmetric/core/a.py",
            "from fastmetric.core.kernels import value\nimport numba.extending",
        ),
        ("fastmetric/nca.py", "from fastmetric import engine\nimport sklearn"),
    ],
    missing_docstrings: [
        ("fastmetric/a.py", 'def f():\n    """Return."""\n    def g(): pass\n    return g'),
        ("fastmetric/a.py", 'class A:\n    """An A."""\n    def __len__(self): return 0'),
        ("fastmetric/a.py", '@overload\ndef f(): ...\ndef f():\n    """Return."""'),
    ],
    too_long: [
        ("fastmetric/a.py", "x = 0\n" * MOST_LINES),
        ("fastmetric/a.py", '"""A.\n' + "b\n" * MOST_LINES + '"""\n' + "x = 0\n" * MOST_LINES),
        ("fastmetric/a.py", "x = 0  # why\n\n# why\n" * MOST_LINES),
        ("fastmetric/a.py", 'def f():\n    """Return.\n\n    A.\n    """\n    return 0\n' * 150),
    ],
}

BROKEN: dict[Rule, list[tuple[str, str]]] = {
    options_outside_jit: [
        ("fastmetric/core/a.py", "from numba import njit"),
        ("fastmetric/core/a.py", "from numba import njit as quick"),
        ("fastmetric/core/a.py", "import numba as nb\n@nb.jit\ndef f(): pass"),
        ("fastmetric/core/a.py", "from numba.extending import register_jitable"),
        ("fastmetric/core/a.py", "from fastmetric._jit import jit\nfrom numba import jit"),
        ("fastmetric/core/a.py", "from fastmetric._jit import jit\nimport numba\nf = numba.jit(g)"),
        ("fastmetric/core/a.py", "@jit\ndef f(): pass"),  # from where?
        ("fastmetric/core/a.py", "from numba import stencil"),
        ("fastmetric/core/a.py", "import numba as nb\n@nb.stencil\ndef f(): pass"),
        (
            "fastmetric/core/a.py",
            "from fastmetric._jit import jit\n@jit(fastmath=True)\ndef f(): pass",
        ),
        ("fastmetric/learn/a.py", "def f():\n    import numba\n    return numba.vectorize"),
        ("fastmetric/core/a.py", "@overload(exp, jit_options={})\ndef f(x): pass"),
    ],
    threads_of_numba: [
        ("fastmetric/core/a.py", "from numba import prange"),
        ("fastmetric/core/a.py", "import numba\nfor i in numba.prange(3): pass"),
        ("fastmetric/_jit.py", "numba.njit(parallel=True)"),
        ("fastmetric/_jit.py", 'options = {"nogil": True, "parallel": True}'),
    ],
    imports_above_the_core: [
        ("fastmetric/core/a.py", "from fastmetric import engine"),
        ("fastmetric/core/a.py", "from fastmetric.learn.rows import project"),
        ("fastmetric/core/a.py", "import fastmetric"),
        ("fastmetric/core/a.py", "from .. import engine"),
        ("fastmetric/core/a.py", "from fastmetric import core_of_another"),
        ("fastmetric/core/a.py", "def f():\n    import scipy.special"),
        ("fastmetric/core/a.py", "from sklearn.utils import check_array"),
        ("fastmetric/core/a.py", "from concurrent.futures import ThreadPoolExecutor"),
    ],
    missing_docstrings: [
        ("fastmetric/a.py", "def f():\n    return 0"),
        ("fastmetric/a.py", "class A:\n    x = 0"),
        ("fastmetric/a.py", 'class A:\n    """An A."""\n    def _f(self): return 0'),
        ("fastmetric/a.py", "if True:\n    def f():\n        return 0"),
        ("fastmetric/a.py", "@overload\ndef f(): ...\ndef f():\n    return 0"),
    ],
    too_long: [
        ("fastmetric/a.py", "x = 0\n" * (MOST_LINES + 1)),
        ("fastmetric/a.py", 'x = """\n' + "a\n" * MOST_LINES + '"""\n'),  # a string, no docstring
        ("fastmetric/a.py", "x = [\n" + "    0,\n" * MOST_LINES + "]\n"),
    ],
}


@pytest.mark.parametrize("rule", KEPT, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    modules = sources()
    assert {"fastmetric/_jit.py", "fastmetric/core/kernels.py", "fastmetric/nca.py"} <= set(modules)
    violations = [found for path, text in modules.items() for found in rule(path, text)]
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("rule", "path", "text"), [(rule, *case) for rule, cases in BROKEN.items() for case in cases]
)
def test_the_rule_finds_a_violation(rule, path, text):
    assert rule(path, text)


@pytest.mark.parametrize(
    ("rule", "path", "text"), [(rule, *case) for rule, cases in KEPT.items() for case in cases]
)
def test_the_rule_lets_good_code_pass(rule, path, text):
    assert not rule(path, text)


# The import contract


def broken_contracts(root: Path) -> str:
    """Return what import-linter finds against the contracts in the pyproject.toml of `root`."""
    pytest.importorskip("importlinter")
    code = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    linted = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    return linted.stdout + linted.stderr if linted.returncode else ""


def test_the_import_contracts_are_kept():
    broken = broken_contracts(ROOT)
    assert not broken, broken


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core/kernels.py", "import scipy.special"),
        ("core/kernels.py", "from fastmetric import engine"),
        ("learn/rows.py", "from fastmetric import nca"),
        ("_jit.py", "from fastmetric.core.vector import exp"),
    ],
)
def test_the_import_contracts_find_an_import_that_points_up(module, line, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fastmetric", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "fastmetric" / module
    path.write_text(f"{path.read_text('utf-8')}\n{line}\n", "utf-8")
    assert "BROKEN" in broken_contracts(tmp_path)


# No n x n allocation

_MEASURED = """
import json
import numpy as np
from fastmetric import nca_value_and_grad

def figure(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))

def evaluate(n):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, 2)), rng.integers(0, 3, n)
    {statement}

evaluate(200)  # loads the compiled code
before = figure("VmHWM")
evaluate(8000)
print(json.dumps(figure("VmHWM") - before))
"""


def peak_megabytes(statement: str) -> float:
    """Return by how much `statement`, of X (8000, 2) and y, raises a process's peak of memory.

    The peak of the process, because Numba's arrays are invisible to tracemalloc.
    """
    code = _MEASURED.format(statement=statement)
    measured = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(measured.stdout)


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="no /proc: the peak cannot be read"
)


@needs_proc
@pytest.mark.parametrize("arguments", ["", ", rows=np.arange(n)"])
def test_an_evaluation_allocates_nothing_of_size_n_by_n(arguments):
    used = peak_megabytes(f"nca_value_and_grad(np.eye(2), X, y{arguments}, n_jobs=2)")
    assert used < MOST_MEGABYTES


@needs_proc
def test_an_allocation_of_size_n_by_n_is_noticed():
    assert peak_megabytes("np.ones((n, n), dtype=np.float32)") > MOST_MEGABYTES
