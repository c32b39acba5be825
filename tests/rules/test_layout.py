"""Where things stand in the package: names and folders. Every rule is shown to find a violation."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from tests.rules.test_rules import PACKAGE, sources

INIT = "__init__.py"
MOST_FILES = 10  # in a folder, __init__ not counted


def names_used_twice(modules: dict[str, str]) -> list[str]:
    """Return the modules that share their name with another: a name must say which one is meant."""
    paths = [PurePosixPath(path) for path in modules]
    often = {name for name, n in Counter(path.name for path in paths).items() if n > 1} - {INIT}
    return [f"{path}: the name stands twice" for path in paths if path.name in often]


def full_folders(modules: dict[str, str]) -> list[str]:
    """Return the folders with more files than one question needs; the top one holds the classes."""
    paths = [PurePosixPath(path) for path in modules]
    counted = Counter(str(path.parent) for path in paths if path.name != INIT)
    del counted["fastmetric"]
    return [f"{name}: {n} files; split it" for name, n in counted.items() if n > MOST_FILES]


_ENTRY = re.compile(r"^\* ((?:`\w+`(?:, | and )?)+)", re.MULTILINE)


def untrue_maps(modules: dict[str, str]) -> list[str]:
    """Return where the docstring of a folder's `__init__` is no map of the folder.

    An item of a list for each module and sub-folder, "* `name`: what it is about", and for no
    other. The top folder's docstring speaks to users and needs none.
    """
    found = []
    for path, text in modules.items():
        folder = str(PurePosixPath(path).parent)
        if PurePosixPath(path).name != INIT or folder == "fastmetric":
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        named = {name for entry in _ENTRY.findall(docstring) for name in re.findall(r"\w+", entry)}
        inside = (PurePosixPath(other) for other in modules if other != path)
        parts = (other.relative_to(folder) for other in inside if other.is_relative_to(folder))
        there = {part.parts[0].removesuffix(".py") for part in parts}
        found += [f"{path}: {name} is missing" for name in sorted(there - named)]
        found += [f"{path}: {name} is not there" for name in sorted(named - {"and"} - there)]
    return found


# One place for an idea

_ONCE = {
    "lbfgs": ast.FunctionDef,
    "Outcome": ast.ClassDef,
    "Recorder": ast.ClassDef,
    "choose": ast.FunctionDef,
    "cheaper": ast.FunctionDef,
}
_TABLES = "fastmetric/learn/costs.py"


def written_again(modules: dict[str, str]) -> list[str]:
    """Return the functions and classes of one idea that are defined more or less than once."""
    trees = {path: ast.parse(text) for path, text in modules.items()}
    found = []
    for name, kind in _ONCE.items():
        places = [
            f"{path}:{node.lineno}"
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, kind) and node.name == name
        ]
        if len(places) != 1:
            found.append(f"{name} is defined {len(places)} times: {', '.join(places)}")
    return found


def tables_elsewhere(modules: dict[str, str]) -> list[str]:
    """Return the tables of costs outside `learn/costs.py`, and this file if it has none.

    A table is a class of costs or a call of one.
    """
    places = [
        f"{path}:{node.lineno}"
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.ClassDef) and node.name.endswith("Costs"))
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Costs"))
    ]
    found = [f"{place}: a table of costs" for place in places if not place.startswith(_TABLES)]
    return found if any(place.startswith(_TABLES) for place in places) else [*found, _TABLES]


def interrupts_handled_again(modules: dict[str, str]) -> list[str]:
    """Return the handlers of Ctrl-C outside the command line, if there is not exactly one."""
    places = [
        f"{path}:{node.lineno}"
        for path, text in modules.items()
        if not path.startswith("fastmetric/cli/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and "KeyboardInterrupt" in ast.unparse(node.type)
    ]
    return [] if len(places) == 1 else [f"handlers of Ctrl-C: {', '.join(places) or 'none'}"]


def fits_mixed_in(modules: dict[str, str]) -> list[str]:
    """Return the classes with a fit mixed in: a fit is functions, not a base class."""
    return [
        f"{path}:{node.lineno}: {node.name} inherits {ast.unparse(base)}"
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if re.search(r"Fit(Mixin)?$", ast.unparse(base))
    ]


MOST_ARGUMENTS = 7


def long_signatures(modules: dict[str, str]) -> list[str]:
    """Return the functions below `core` and `learn` with too many arguments.

    Intrinsics are excepted: they are typed argument by argument and write machine code.
    """
    return [
        f"{path}:{node.lineno}: {node.name} has {count} arguments"
        for path, text in modules.items()
        if path.startswith(("fastmetric/core/", "fastmetric/learn/"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        if "intrinsic" not in map(ast.unparse, node.decorator_list)
        if (count := sum(isinstance(part, ast.arg) for part in ast.walk(node.args)))
        > MOST_ARGUMENTS
    ]


# Every rule, with packages that keep it and packages that break it.

Rule = Callable[[dict[str, str]], list[str]]


def empty(*paths: str) -> dict[str, str]:
    """Return a package of modules without content."""
    return dict.fromkeys((f"fastmetric/{path}" for path in paths), "")


KEPT: dict[Rule, list[dict[str, str]]] = {
    names_used_twice: [empty("__init__.py", "core/__init__.py", "core/tree.py", "core/trees.py")],
    full_folders: [
        empty("core/__init__.py", *(f"core/a{k}.py" for k in range(MOST_FILES))),
        empty(*(f"a{k}.py" for k in range(2 * MOST_FILES))),
    ],
    untrue_maps: [
        {
            "fastmetric/__init__.py": '"""Metrics."""',
            "fastmetric/core/__init__.py": '"""Core.\n\n* `a`: what?\n* `b`: `c`?\n"""',
            "fastmetric/core/a.py": "",
            "fastmetric/core/b/__init__.py": '"""B.\n\n* `c`, `d`: two.\n"""',
            "fastmetric/core/b/c.py": "",
            "fastmetric/core/b/d.py": "",
        }
    ],
    written_again: [
        {
            "fastmetric/a.py": "def lbfgs(): pass\nclass Outcome: pass\ndef choose(): pass",
            "fastmetric/b.py": "class Recorder: pass\nlbfgs()\ndef cheaper(): pass",
        }
    ],
    tables_elsewhere: [{_TABLES: "class Costs: pass", "fastmetric/a.py": "costs.SUMS"}],
    interrupts_handled_again: [
        {
            "fastmetric/learn/a.py": "try: f()\nexcept (KeyboardInterrupt, OSError): pass",
            "fastmetric/cli/b.py": "try: f()\nexcept KeyboardInterrupt: pass",
        }
    ],
    fits_mixed_in: [{"fastmetric/a.py": "class Fit: pass\nclass A(Base, Fitted): pass"}],
    long_signatures: [
        {"fastmetric/core/a.py": "def f(a, b, c, d, e, *, f, g=None): pass"},
        {"fastmetric/core/a.py": "@intrinsic\ndef f(a, b, c, d, e, f, g, h): pass"},
        {"fastmetric/a.py": "def f(a, b, c, d, e, f, g, h): pass"},
    ],
}

BROKEN: dict[Rule, list[dict[str, str]]] = {
    names_used_twice: [empty("near.py", "core/near.py"), empty("core/a/b.py", "core/c/b.py")],
    full_folders: [empty("core/__init__.py", *(f"core/a{k}.py" for k in range(MOST_FILES + 1)))],
    untrue_maps: [
        empty("core/__init__.py", "core/a.py"),
        {"fastmetric/core/__init__.py": '"""Core.\n\n* `a`: gone.\n"""'},
        {"fastmetric/core/__init__.py": '"""Of `a`."""', "fastmetric/core/a.py": ""},
        {
            "fastmetric/core/__init__.py": '"""Core.\n\n* `a`: a file.\n"""',
            "fastmetric/core/a.py": "",
            "fastmetric/core/b/__init__.py": "",
        },
    ],
    written_again: [
        {"fastmetric/a.py": "def lbfgs(): pass\nclass Outcome: pass"},
        {
            "fastmetric/a.py": "def lbfgs(): pass\nclass Outcome: pass\nclass Recorder: pass",
            "fastmetric/b.py": "class Outcome: pass",
        },
    ],
    tables_elsewhere: [
        {"fastmetric/a.py": ""},
        {_TABLES: "class Costs: pass", "fastmetric/a.py": "class MyCosts: pass"},
        {_TABLES: "class Costs: pass", "fastmetric/a.py": "T = costs.Costs(1.0)"},
    ],
    interrupts_handled_again: [
        {"fastmetric/learn/a.py": ""},
        {
            "fastmetric/learn/a.py": "try: f()\nexcept KeyboardInterrupt: pass",
            "fastmetric/nca.py": "try: f()\nexcept (OSError, KeyboardInterrupt): pass",
        },
    ],
    fits_mixed_in: [
        {"fastmetric/a.py": "class A(NCAFit, Base): pass"},
        {"fastmetric/a.py": "class A(parts.FitMixin): pass"},
    ],
    long_signatures: [
        {"fastmetric/core/a.py": "def f(a, b, c, d, e, f, g, h): pass"},
        {"fastmetric/learn/b/a.py": "class A:\n def f(self, a, b, c, *d, e, f, **g): pass"},
    ],
}


@pytest.mark.parametrize("rule", KEPT, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    modules = sources()
    assert {"fastmetric/nca.py", "fastmetric/core/__init__.py"} <= set(modules)
    violations = rule(modules)
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("rule", "modules"), [(rule, case) for rule, cases in BROKEN.items() for case in cases]
)
def test_the_rule_finds_a_violation(rule, modules):
    assert rule(modules)


@pytest.mark.parametrize(
    ("rule", "modules"), [(rule, case) for rule, cases in KEPT.items() for case in cases]
)
def test_the_rule_lets_a_good_package_pass(rule, modules):
    assert not rule(modules)


# Their points are in memory: trees, neighbours, and densities over them.
RESIDENT = ("kernel_sums", "manifold", "nearest_neighbours", "tree_building", "tree_search", "rows")


def takers_of_an_array(source: str) -> list[str]:
    """Return the functions that take the data X of a fit as an array."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if arg.arg == "X" and (arg.annotation is None or "Rows" not in ast.unparse(arg.annotation))
    ]


def test_fits_read_data_through_rows_only():
    assert takers_of_an_array("def f(X: np.ndarray): ...\ndef g(X: Rows): ...") == ["f"]
    learn = PACKAGE / "learn"
    for path in learn.rglob("*.py"):
        if path.relative_to(learn).parts[0].removesuffix(".py") not in RESIDENT:
            assert not takers_of_an_array(path.read_text()), path
