"""Errors name the parameter, say what was given and what was expected, and come before any work."""

from __future__ import annotations

import inspect
import re
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import fastmetric
from fastmetric import NCA, KernelDensity, LatentCoincidenceAnalysis, engine
from tests.estimators import wrong_values
from tests.estimators.wrong_values import BEYOND, TABLE, Call, Parameter, X, Y, calls

ENTRIES = [(place, name) for place, parameters in TABLE.items() for name in parameters]

# What a message may say of a container, besides showing it.
_OF_CONTAINERS = (
    r"NaN|infinity|[Cc]omplex|[Ss]parse|strings|dates|durations|mask|range of float64|shape|"
    "features|number of dimensions|one class|continuous|should not be negative|all zero|run from|"
    "too far|"
    "unknown|not positive definite|not symmetric|inconsistent|not 'dict'|not supported between|"
    "not 'datetime|not '_?[Gg]enerator|not known|for each of|it holds|are not those|y holds|"
    r"for every feature|sequence|\bdim\b|; got "
)
_EXPECTED = "should|expected|choose|[Gg]ive|needed|at least|required"


class WorkBeganError(AssertionError):
    """A loop over blocks began although an argument is wrong."""


def fault_of_message(message: str, name: str, value: Any) -> str:
    """Return what an error's message lacks; nothing if it is complete."""
    if not re.search(rf"\b{name}\b", message):
        return "the name"
    shown = [type(value).__name__]
    with suppress(ValueError):  # more digits than Python prints
        shown.append(" ".join(repr(value).split())[:20])
    given = any(one in message for one in shown)
    plain = value is None or isinstance(value, str | bytes | int | float | complex)
    if not given and (plain or not re.search(_OF_CONTAINERS, message)):
        return "what was given"
    return "" if re.search(_EXPECTED, message) else "what was expected"


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether attributes are the same objects as before."""
    return before.keys() == after.keys() and all(before[key] is after[key] for key in before)


def fault_of_call(call: Call, name: str, value: Any) -> str:
    """Return what is wrong with how a call refuses a value; nothing if all is right."""
    owner, ask = call.of(value)
    before = None if owner is None else dict(vars(owner))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask()
    except WorkBeganError:
        return "work began before the check"
    except (ValueError, TypeError) as error:
        lacking = fault_of_message(str(error), name, value)
        if lacking:
            return f"the message lacks {lacking}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "no error"
    if owner is not None and not unchanged(before or {}, vars(owner)):
        return "the estimator changed"
    return ""


def faults(place: str, name: str) -> tuple[int, list[str]]:
    """Return how many wrong values of a parameter were tried, and the faults found."""
    parameter, tried, found = TABLE[place][name], 0, []
    for call in calls(place, name, parameter):
        for label, value in parameter.wrong_values().items():
            fault = fault_of_call(call, name, value)
            tried += 1
            if fault:
                found.append(f"{call.label}({name}=<{label}>): {fault}")
    return tried, found


@pytest.fixture
def _no_work(monkeypatch):
    for name in wrong_values.MADE_WITH:
        wrong_values.fitted(name)

    def began(*_, **__):
        raise WorkBeganError

    monkeypatch.setattr(engine, "run", began)


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(("place", "name"), ENTRIES)
def test_a_wrong_value_is_named_shown_and_refused_before_any_work(place, name):
    _, found = faults(place, name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("place", "name"), ENTRIES)
@pytest.mark.filterwarnings("ignore")
def test_a_legal_value_is_accepted(place, name):
    parameter = TABLE[place][name]
    for call in calls(place, name, parameter):
        for value in parameter.legal_values().values():
            call.of(value)[1]()


# The table is complete


def public_parameters() -> dict[str, set[str]]:
    """Return the parameters of every public function and method written here, by its place."""
    places: dict[str, Any] = {}
    for name in set(fastmetric.__all__) - {
        "save",
        "load",
        "warmup",
    }:  # they have tests of their own
        what = getattr(fastmetric, name)
        if callable(what):
            places[name] = what
        if isinstance(what, type):
            methods = inspect.getmembers(what, inspect.isfunction)
            for method, function in methods:
                ours = function.__module__.startswith("fastmetric.")
                if ours and not method.startswith("_"):
                    places[f"{name}.{method}"] = function
    return {
        place: set(inspect.signature(what).parameters) - {"self"} for place, what in places.items()
    }


def missing(table: dict[str, dict[str, Parameter]]) -> list[str]:
    """Return where a table and the public signatures differ."""
    there = public_parameters()
    places = there.keys() | table.keys()
    return sorted(
        f"{place}({name})"
        for place in places
        for name in there.get(place, set()) ^ table.get(place, {}).keys()
    )


def test_the_table_has_every_parameter_of_every_signature():
    assert not missing(TABLE)
    assert sum(map(len, TABLE.values())) == sum(map(len, public_parameters().values()))


def test_a_parameter_that_is_not_in_the_table_is_found():
    assert missing({**TABLE, "NCA": {}}) == sorted(f"NCA({name})" for name in TABLE["NCA"])
    less = {name: one for name, one in TABLE["KDTree.query"].items() if name != "k"}
    assert missing({**TABLE, "KDTree.query": less}) == ["KDTree.query(k)"]
    assert missing({**TABLE, "gone": {"a": Parameter(wrong_values.NOTHING)}}) == ["gone(a)"]


# The checks can fail


@pytest.mark.parametrize(
    ("message", "value", "lacking"),
    [
        ("tolerance should be positive; got -1.", -1, "the name"),
        ("tol should be positive.", -1, "what was given"),
        ("tol=-1 is no good.", -1, "what was expected"),
        ("tol should be positive; got -1.", -1, ""),
        ("tol should be a number.", np.ones(3), "what was given"),
        ("tol has shape (3,); a number was expected.", np.ones(3), ""),
    ],
)
def test_a_message_that_lacks_something_is_found(message, value, lacking):
    assert fault_of_message(message, "tol", value) == lacking


class Careless:
    """Changes, then refuses by a given error; or does not refuse."""

    def __init__(self, error: Exception | None, changes: bool) -> None:
        self.error, self.changes = error, changes

    def fit(self, a: Any) -> None:
        if self.changes:
            self.a = a
        if self.error is not None:
            raise self.error


GOOD = ValueError("a should be 1; got 2.")


@pytest.mark.parametrize(
    ("error", "changes", "fault"),
    [
        (None, False, "no error"),
        (OverflowError("a should be 1; got 2."), False, "OverflowError"),
        (ValueError("a should be 1."), False, "what was given"),
        (WorkBeganError(), False, "work began"),
        (GOOD, True, "changed"),
        (GOOD, False, ""),
    ],
)
def test_a_careless_refusal_is_found(error, changes, fault):
    def of(value):
        careless = Careless(error, changes)
        return careless, lambda: careless.fit(value)

    found = fault_of_call(Call("", of), "a", 2)
    assert fault in found
    assert bool(found) == bool(fault)


# What a message shows


def test_a_long_value_is_shown_on_one_short_line():
    for value in (BEYOND, 10**5000, "x" * 10_000, np.ones((100, 100)), [[1.0] * 50] * 50):
        with pytest.raises(ValueError, match=r"^alpha should be a finite number") as raised:
            NCA(alpha=value).fit(X, Y)
        assert len(str(raised.value)) < 200
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (NCA(random_state=np.random.default_rng(0)), r"rng.integers\(2\*\*32\)"),
        (NCA(random_state=2**32), r"from 0 to 2\*\*32 - 1"),
    ],
)
def test_a_seed_of_another_kind_is_refused_with_advice(model, advice):
    with pytest.raises(ValueError, match=advice):
        model.fit(X, Y)


def test_frames_with_dates_or_strings_are_refused_by_their_columns():
    pd = pytest.importorskip("pandas")
    dates = pd.DataFrame({"a": X[:, 0], "b": pd.date_range("2020-01-01", periods=6)})
    for frame in (dates, dates[["b"]], dates[["b"]] - dates["b"].iloc[0].to_datetime64()):
        with pytest.raises(ValueError, match=r"X holds (dates|durations).*numbers were expected"):
            KernelDensity().fit(frame)
    KernelDensity().fit(dates[["a"]])


@pytest.mark.parametrize("size", [1e200, 1e300])
@pytest.mark.parametrize("model", [NCA(), LatentCoincidenceAnalysis(), KernelDensity()])
def test_rows_whose_squares_overflow_are_named(model, size):
    with pytest.raises(ValueError, match=r"\bX\b.*overflow.*[Ss]cale"):
        model.fit(size * X, Y)


def test_a_masked_array_is_refused_with_what_to_do():
    gaps = np.ma.array(X, mask=X > 1)
    with pytest.raises(ValueError, match=r"X is a masked array.*X\.filled\(value\).*SimpleImputer"):
        KernelDensity().fit(gaps)
    KernelDensity().fit(gaps.filled(0.0))


@pytest.mark.parametrize("solver", ["stochastic", "minibatch"])
def test_small_integers_of_numpy_do_not_wrap_around(solver):
    large = np.random.default_rng(0).standard_normal((60, 2))
    options = dict(solver=solver, random_state=0)
    one, other = (
        NCA(max_iter=of(30), batch_size=of(10), **options).fit(large, np.arange(60) % 2)
        for of in (int, np.uint8)
    )
    assert np.array_equal(one.components_, other.components_)
