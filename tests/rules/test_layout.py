"""Where things stand in the package: names and folders. Every rule is shown to find a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from tests.rules.test_rules import sources

INIT = "__init__.py"


def names_used_twice(modules: dict[str, str]) -> list[str]:
    """Return the modules that share their name with another: a name must say which one is meant."""
    paths = [PurePosixPath(path) for path in modules]
    often = {name for name, n in Counter(path.name for path in paths).items() if n > 1} - {INIT}
    return [f"{path}: the name stands twice" for path in paths if path.name in often]


# Every rule, with packages that keep it and packages that break it.

Rule = Callable[[dict[str, str]], list[str]]


def empty(*paths: str) -> dict[str, str]:
    """Return a package of modules without content."""
    return dict.fromkeys((f"fastmetric/{path}" for path in paths), "")


KEPT: dict[Rule, list[dict[str, str]]] = {
    names_used_twice: [empty("__init__.py", "core/__init__.py", "core/tree.py", "core/trees.py")],
}

BROKEN: dict[Rule, list[dict[str, str]]] = {
    names_used_twice: [empty("near.py", "core/near.py"), empty("core/a/b.py", "core/c/b.py")],
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
