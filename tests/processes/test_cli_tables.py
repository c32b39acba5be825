"""Tables on the command line: every kind of file, which columns are features, and what is wrong."""

import datetime
import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.datasets import load_iris

from fastmetric import load
from fastmetric.cli.commands import main
from fastmetric.cli.files.columns import Choice, columns_to_fit
from fastmetric.cli.files.tables import read_raw
from fastmetric.cli.files.text_tables import Reading, TableError, read_text

NAMES = ["sl", "sw", "pl", "pw"]
FIT = ["--max-iter", "2", "--quiet"]
pytestmark = pytest.mark.filterwarnings("ignore:NCA has not converged")


def frame():
    X, y = load_iris(return_X_y=True)
    table = pd.DataFrame(X, columns=NAMES)
    table["species"] = np.array(["setosa", "versicolor", "virginica"])[y]
    return table.iloc[::3].reset_index(drop=True)


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_csv("iris.csv", index=False)
    return tmp_path


def text(table, **options):
    return table.to_csv(index=False, **options).encode()


def with_row_names(table):
    """Return a table as R writes it: a header with one field less than the rows."""
    lines = table.to_csv(index=False).splitlines()
    rows = [f'"{number}",{line}' for number, line in enumerate(lines[1:], start=1)]
    return "\n".join([lines[0], *rows]).encode()


LAYOUTS = {
    "commas.csv": text(frame()),
    "semicolons.csv": text(frame(), sep=";"),
    "decimal comma.csv": text(frame(), sep=";", decimal=","),
    "tabs.tsv": text(frame(), sep="\t"),
    "tabs.csv": text(frame(), sep="\t", decimal=","),
    "bars.txt": text(frame(), sep="|"),
    "spaces.dat": text(frame(), sep=" "),
    "packed.csv.gz": gzip.compress(text(frame())),
    "mark.csv": b"\xef\xbb\xbf" + text(frame()),
    "index.csv": frame().to_csv().encode(),
    "index twice.csv": text(pd.read_csv(io.StringIO(frame().to_csv()))),
    "row names.csv": with_row_names(frame()),
    "windows.csv": text(frame(), lineterminator="\r\n"),
    "blank lines.csv": b"\n" + text(frame()).replace(b"\n", b"\n\n"),
    "end.csv": text(frame()).replace(b"\n", b",\n"),
    "quotes.csv": text(frame(), quoting=1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_text_is_read_in_any_layout(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(LAYOUTS[name])
    table = columns_to_fit(read_raw(path), Choice("species"))
    assert list(table.X.columns) == NAMES
    np.testing.assert_array_equal(table.X.to_numpy(), frame()[NAMES].to_numpy())
    np.testing.assert_array_equal(table.y, frame()["species"].to_numpy().astype(str))
    left_out = [note for note in table.notes if "left out" in note]
    assert len(left_out) == (name in ("index.csv", "index twice.csv", "row names.csv", "end.csv"))


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=60)
@given(
    npst.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=finite),
    st.sampled_from([(",", "."), (";", "."), (";", ","), ("\t", "."), ("\t", ","), ("|", ".")]),
)
def test_numbers_survive_a_file_of_text(X, signs):
    delimiter, decimal = signs
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    data = text(table, sep=delimiter, decimal=decimal)
    again, _ = read_text("file", io.BytesIO(data), Reading(delimiter, decimal))
    # pandas's fast parser may be off by the last bit.
    np.testing.assert_allclose(again.to_numpy(float), X, rtol=1e-14, atol=1e-307)


@pytest.mark.parametrize("name", ["d.npy", "d.npz", "d.parquet", "d.arrow", "d.feather", "-"])
def test_every_kind_of_file_gives_the_same_map(name, folder, monkeypatch):
    target = "species"
    if name == "d.npy":
        np.save(name, np.c_[frame()[NAMES], frame()["species"].factorize()[0]])
        target = "-1"
    elif name == "d.npz":
        np.savez(name, X=frame()[NAMES], species=frame()["species"].to_numpy().astype(str))
    elif name == "-":
        data = io.TextIOWrapper(io.BytesIO(gzip.compress(text(frame()))))
        monkeypatch.setattr(sys, "stdin", data)
    else:
        pytest.importorskip("pyarrow")
        getattr(frame(), "to_parquet" if name == "d.parquet" else "to_feather")(name)
    assert run("fit", "iris.csv", "--target", "species", "--out", "a.skops", *FIT) == 0
    assert run("fit", name, "--target", target, "--out", "b.skops", *FIT) == 0
    np.testing.assert_array_equal(load("a.skops").components_, load("b.skops").components_)


@pytest.mark.parametrize("kind", ["csv", "tsv", "npz", "npy", "parquet", "arrow", "csv.gz"])
def test_results_stand_beside_ids_and_target(kind, folder):
    if kind in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    named = frame().assign(plant=[f"p{k}" for k in range(50)])
    named.to_csv("named.csv", index=False)
    options = ["--target", "species", "--id", "plant", "--out", "m.skops"]
    assert run("fit", "named.csv", *options, *FIT) == 0
    assert run("transform", "m.skops", "named.csv", "--out", f"Z.{kind}") == 0
    expected = load("m.skops").transform(frame()[NAMES])
    if kind in ("npz", "npy"):
        loaded = np.load(f"Z.{kind}")
        np.testing.assert_array_equal(loaded["Z"] if kind == "npz" else loaded, expected)
        if kind == "npz":
            assert list(loaded["plant"][:2]) == ["p0", "p1"]
            assert list(loaded["species"]) == list(frame()["species"])
        return
    readers = {"parquet": pd.read_parquet, "arrow": pd.read_feather}
    read = readers.get(kind, lambda path: pd.read_csv(path, sep="\t" if kind == "tsv" else ","))
    result = read(f"Z.{kind}")
    assert list(result.columns) == ["plant", "species", "nca0", "nca1"]
    assert list(result["plant"]) == list(named["plant"])
    np.testing.assert_allclose(result[["nca0", "nca1"]], expected, rtol=1e-14)


def test_standard_output_holds_nothing_but_the_table(folder, capsys):
    assert run("fit", "iris.csv", "--target", "species", "--out", "m.skops", *FIT) == 0
    capsys.readouterr()
    assert run("transform", "m.skops", "iris.csv", "--out", "-") == 0
    captured = capsys.readouterr()
    assert pd.read_csv(io.StringIO(captured.out)).shape == (50, 3)
    assert "50 rows projected" in captured.err
    assert run("density", "iris.csv", "--target", "species", "--out", "-") == 0
    assert pd.read_csv(io.StringIO(capsys.readouterr().out)).shape == (50, 2)


# Columns


def test_columns_are_matched_by_name(folder, capsys):
    assert run("fit", "iris.csv", "--target", "species", "--out", "m.skops", *FIT) == 0
    other = frame()[["species", "pw", "sl", "pl", "sw"]].assign(more=1)
    other.to_csv("other.csv")  # with an index
    assert run("transform", "m.skops", "other.csv", "--out", "Z.npy") == 0
    error = capsys.readouterr().err
    assert "does not know more: ignored" in error
    np.testing.assert_array_equal(np.load("Z.npy"), load("m.skops").transform(frame()[NAMES]))


def test_features_are_chosen_by_names_patterns_and_numbers():
    raw = read_raw_of(frame().assign(key=np.arange(50) * 7))
    both = {
        Choice("species", features="s?,pl"): ["sl", "sw", "pl"],
        Choice("species", drop="p*,key"): ["sl", "sw"],
        Choice("4", features="0,-3"): ["sl", "pw"],
        Choice("species", ids="key"): NAMES,
        Choice("", features="pl"): ["pl"],
    }
    for choice, columns in both.items():
        assert list(columns_to_fit(raw, choice).X.columns) == columns
    assert list(columns_to_fit(raw, Choice("species", ids="key")).ids.columns) == ["key"]


def read_raw_of(table, name="rows.csv"):
    """Return the raw table that a CSV of a table gives."""
    from fastmetric.cli.files.tables import Raw

    data, notes = read_text(name, io.BytesIO(text(table)), Reading())
    return Raw(name, data, True, list(data.columns), notes, 2)


def test_a_column_that_numbers_the_rows_is_reported(folder, capsys):
    frame().assign(Id=np.arange(1, 51)).to_csv("id.csv", index=False)
    assert run("fit", "id.csv", "--target", "species", "--out", "m.skops", *FIT) == 0
    assert "warning: column Id numbers the rows" in capsys.readouterr().err
    options = ["--target", "species", "--id", "Id", "--out", "n.skops"]
    assert run("fit", "id.csv", *options, *FIT) == 0
    assert "Id" not in capsys.readouterr().err


def _table(**changes):
    return frame().assign(**changes)


def _gap(row, column):
    table = frame()
    table.loc[row, column] = np.nan
    return table


WRONG = {
    "missing": (text(_gap(3, "pl")), "row 5, column pl: the value is missing (1 in all: pl 1)"),
    "class": (text(_gap(3, "species")), "row 5, column species: the class is missing"),
    "empty column": (text(_table(e=np.nan)), "column e has no values; --drop e"),
    "names": (text(_table(who=[f"n{k}" for k in range(50)])), "row 2, column who: 'n0' is no"),
    "infinite": (text(frame()).replace(b"5.1", b"inf", 1), "row 2, column sl: inf is not finite"),
    "typo": (text(frame()).replace(b"5.1", b"5.1.", 1), "row 2, column sl: '5.1.' is no number"),
    "twice": (text(frame()).replace(b"sw", b"sl", 1), "the column 'sl' twice"),
    "no header": (b"1,2,3\n4,5,6\n", "give --no-header"),
    "short": (text(frame()).replace(b",setosa\n", b"\n", 1), "row 2: 4 fields, the header has 5"),
    "short later": (
        text(frame())[::-1].replace(b"acinigriv,", b"", 1)[::-1],
        "row 51: 4 fields, the header has 5",
    ),
    "long": (text(frame()).replace(b"setosa", b"setosa,1", 1), "row 2: 6 fields, the header has"),
    "unnamed": (text(frame()).replace(b"sw", b"", 1), "column 2 of the header has no name"),
    "latin": (text(frame()).replace(b"setosa", b"s\xe9tosa"), "see line 2; save it as UTF-8"),
    "header only": (b"sl,sw,species\n", "at least one row"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_with_row_and_column(data, message, folder, capsys):
    (folder / "wrong.csv").write_bytes(data)
    assert run("fit", "wrong.csv", "--target", "species", "--out", "m.skops", *FIT) == 1
    error = capsys.readouterr().err
    assert "wrong.csv" in error
    assert message in error
    assert len(error.splitlines()) == 1


def test_options_mend_what_is_wrong(folder):
    mended = {
        "latin": ["--encoding", "latin-1"],
        "missing": ["--impute", "mean"],
        "typo": ["--missing", "5.1.", "--impute", "median"],
        "names": ["--id", "who"],
        "empty column": ["--drop", "e"],
    }
    for name, options in mended.items():
        (folder / "wrong.csv").write_bytes(WRONG[name][0])
        out = ["--target", "species", "--out", f"{name}.skops"]
        assert run("fit", "wrong.csv", *out, *options, *FIT) == 0
    (folder / "bare.csv").write_bytes(text(frame(), header=False))
    options = ["--no-header", "--target", "4", "--out", "bare.skops"]
    assert run("fit", "bare.csv", *options, *FIT) == 0
    assert run("fit", "iris.csv", "--target", "species", "--out", "m.skops", *FIT) == 0
    np.testing.assert_array_equal(load("bare.skops").components_, load("m.skops").components_)
    assert run("transform", "bare.skops", "bare.csv", "--no-header", "--out", "Z.npy") == 0


def test_dates_are_refused(folder, capsys):
    pytest.importorskip("pyarrow")
    for day in (pd.Timestamp("2020-01-01"), datetime.date(2020, 1, 1)):
        frame().assign(day=day).to_parquet("dates.parquet")
        assert run("fit", "dates.parquet", "--target", "species", "--out", "m.skops", *FIT) == 1
        assert "column day: dates or times" in capsys.readouterr().err


def test_without_pyarrow_parquet_is_refused_with_the_command(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (folder / "d.parquet").write_bytes(b"PAR1")
    assert run("fit", "d.parquet", "--target", "species", "--out", "m.skops") == 1
    assert 'pip install "fastmetric[io]"' in capsys.readouterr().err
    assert run("density", "iris.csv", "--target", "species", "--out", "Z.parquet") == 1
    assert 'pip install "fastmetric[io]"' in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_damaged_arrow_files_are_one_clear_line(kind, folder, capsys):
    pytest.importorskip("pyarrow")
    path = folder / f"d.{kind}"
    getattr(frame(), "to_parquet" if kind == "parquet" else "to_feather")(path)
    good = path.read_bytes()
    for data in (b"", b"text", good[: len(good) // 2], good[:9] + good[9:][::-1]):
        path.write_bytes(data)
        assert run("fit", path, "--target", "species", "--out", "m.skops") == 1
        error = capsys.readouterr().err
        assert "damaged" in error
        assert len(error.splitlines()) == 1


def test_float32_stays_float32(folder):
    X = frame()[NAMES].to_numpy(np.float32)
    np.savez("d.npz", X=X, y=frame()["species"].factorize()[0])
    table = columns_to_fit(read_raw(folder / "d.npz"), Choice("y"))
    assert table.X.to_numpy().dtype == np.float32
    assert not np.isnan(table.y).any()


def test_a_table_error_has_no_traceback(folder):
    with pytest.raises(TableError):
        columns_to_fit(read_raw_of(frame()), Choice("nothing"))
    assert run("fit", "iris.csv", "--target", "nothing", "--out", "m.skops") == 1
