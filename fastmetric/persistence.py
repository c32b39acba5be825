"""Saving and loading of estimators as `.skops` files, which hold no code.

Loading a pickle (or a joblib file, which is one) runs whatever code the file names. A `.skops` file
holds arrays, numbers, strings and names of types; all names are compared with a list before
the first object is made.

Data flow: `write` refuses what `read` would not load, and replaces the previous file in one step;
`read` compares, makes the objects, and looks at what it got. `save` and `load` are these two for an
estimator alone; the command line adds notes on the table that a model was fitted to.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import ZipFile, is_zipfile

from sklearn.base import BaseEstimator

# As in the files: of a class that moves to another module the old name stays, too.
TRUSTED_TYPES = (
    "fastmetric.density_classifier.DensityClassifier",
    "fastmetric.kd_tree.KDTree",
    "fastmetric.kernel_density.KernelDensity",
    "fastmetric.latent_coincidence.LatentCoincidenceAnalysis",
    "fastmetric.latent_coincidence_classifier.LatentCoincidenceClassifier",
    "fastmetric.local_component.LocalComponentAnalysis",
    "fastmetric.manifold_parzen.ManifoldParzen",
    "fastmetric.mean_shift.MeanShift",
    "fastmetric.nca.NCA",
    "numpy.dtype",  # of scikit-learn's SimpleImputer; it describes numbers and runs nothing
)

_SUFFIX = ".skops"
_NOTES = "fastmetric.json"  # a member of the archive that skops does not read
_FORMAT = 1  # of the estimators' states; files of a later one are refused
_START_OF_ARCHIVE = b"PK\x03\x04"


class Saved(NamedTuple):
    """What a file holds."""

    estimator: Any
    notes: dict[str, Any]


def save(estimator: Any, path: Any) -> None:
    """Save an estimator, fitted or not, to a file from which `load` gets it back.

    The previous file stays whole until the new one is complete on disk, and is then replaced in one
    step.

    Parameters
    ----------
    estimator : object
        Any estimator of this package, a :class:`KDTree`, or an estimator of scikit-learn around
        them, such as a `Pipeline`. All parts should be of types that `load` trusts: a `callback`
        should be None.
    path : str or path-like
        The file, ending in .skops.

    Raises
    ------
    TypeError
        If this is no estimator, or holds an object that `load` would refuse; it is named.
    ValueError
        If `path` does not end in .skops.
    OSError
        If the file cannot be written.

    See Also
    --------
    load : Get it back.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> import fastmetric
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = fastmetric.NCA(n_components=2).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fastmetric.save(nca, folder + "/iris.skops")
    ...     same = fastmetric.load(folder + "/iris.skops")
    >>> bool((same.transform(X) == nca.transform(X)).all())
    True
    """
    write(estimator, path)


def load(path: Any) -> Any:
    """Load an estimator that was saved by `save`. No code of the file runs.

    Its outputs are those of the saved one, to the last bit.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator : object
        The estimator.

    Raises
    ------
    TypeError
        If the file wants a type other than the estimators of this package, what scikit-learn
        and NumPy have and skops trusts, and plain data; it is named, and nothing was made of it.
    ValueError
        If the file is damaged, or holds no estimator.
    OSError
        If the file cannot be read.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import tempfile
    >>> import fastmetric
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fastmetric.save(fastmetric.MeanShift(bandwidth=2.0), folder + "/shift.skops")
    ...     fastmetric.load(folder + "/shift.skops")
    MeanShift(bandwidth=2.0)
    """
    return read(path).estimator


def write(estimator: Any, path: Any, notes: dict[str, Any] | None = None) -> None:
    """Write an estimator, and notes that JSON can hold, to a file; see `save`."""
    import skops.io  # here, because it imports all of scikit-learn

    target = Path(path)
    if not _is_estimator(estimator):
        raise TypeError(
            f"save was given {_name_of(type(estimator))}; an estimator was expected, not its class "
            "or its attributes."
        )
    if target.suffix != _SUFFIX:
        raise ValueError(f"{target} does not end in {_SUFFIX}. Give a name that does.")
    with _replacing(target) as temporary:
        with temporary.open("wb") as file:
            try:
                skops.io.dump(estimator, file)
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                raise TypeError(
                    f"{_name_of(type(estimator))} holds an object that has no place in a "
                    f"{_SUFFIX} file ({error}). {_ADVICE_TO_SAVE}"
                ) from error
        refused = _refused(temporary)
        if refused:
            raise TypeError(
                f"{_name_of(type(estimator))} holds {', '.join(refused)}, which load would refuse. "
                f"{_ADVICE_TO_SAVE}"
            )
        with ZipFile(temporary, "a") as archive:
            archive.writestr(_NOTES, json.dumps({**(notes or {}), "format": _FORMAT}))


_ADVICE_TO_SAVE = (
    "Replace it by plain data (a callback by None, for example), or write a file for your own use "
    "by joblib.dump; loading that one runs code."
)


def read(path: Any) -> Saved:
    """Return what a file holds; see `load`."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    path = Path(path)
    with _opened(path) as file:
        _check_archive(path, file)
        try:
            notes = _notes(file)
            estimator = skops.io.load(file, trusted=TRUSTED_TYPES)
        except UntrustedTypesFoundException as error:
            raise TypeError(
                f"{path} wants {', '.join(_refused(path))}, and only the estimators of fastmetric, "
                "those of scikit-learn and plain data are loaded. Nothing of the file was made. If "
                "you know who wrote it and trust these types, name them to skops.io.load(path, "
                "trusted=[...]), beside fastmetric.persistence.TRUSTED_TYPES."
            ) from error
        except MemoryError:
            raise
        # Depending on the byte that is wrong, zipfile, json, NumPy and skops raise anything.
        except Exception as error:
            raise ValueError(
                f"{path} is damaged, or of a newer version of fastmetric or skops ({error!r}). "
                "Take the file again from where it came, save the estimator again, or update both "
                "packages."
            ) from error
    if not _is_estimator(estimator):
        raise ValueError(
            f"{path} holds {_name_of(type(estimator))}, no estimator. A file written by "
            "fastmetric.save was expected."
        )
    return Saved(estimator, notes)


def _name_of(kind: type) -> str:
    """Return the full name of a type, as TRUSTED_TYPES has it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_estimator(value: Any) -> bool:
    """Return whether this is what `save` is for."""
    return isinstance(value, BaseEstimator) or _name_of(type(value)) in TRUSTED_TYPES


def _refused(path: Path) -> list[str]:
    """Return the names of the types in a file that are not trusted."""
    import skops.io

    found = skops.io.get_untrusted_types(file=path)
    return [name for name in found if name not in TRUSTED_TYPES]


# Files


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, with errors that say what was expected."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read ({error.strerror}); a file written by fastmetric.save was "
            "expected. Check the path and your access to it."
        ) from error
    with file:
        yield file


def _check_archive(path: Path, file: BinaryIO) -> None:
    """Raise if an open file is no archive: another kind of file, or a truncated one."""
    if is_zipfile(file):
        file.seek(0)
        return
    file.seek(0)
    start = file.read(len(_START_OF_ARCHIVE))
    if start == _START_OF_ARCHIVE:
        raise ValueError(
            f"{path} is truncated or damaged: its table of contents, at the end, is missing. "
            "Take the file again from where it came, or save the estimator again."
        )
    raise ValueError(
        f"{path} is {'no ' + _SUFFIX + ' file' if start else 'empty'}; a file written by "
        "fastmetric.save was expected. If it is a pickle of your own, load it by joblib.load, "
        "which runs code, and save it anew."
    )


def _notes(file: BinaryIO) -> dict[str, Any]:
    """Return the notes in an archive; a file that skops.io.dump wrote has none."""
    with ZipFile(file) as archive:
        if _NOTES not in archive.namelist():
            return {}
        notes = json.loads(archive.read(_NOTES))
    if notes["format"] > _FORMAT:
        raise ValueError(f"format {notes['format']}; this version reads up to {_FORMAT}")
    return notes


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a new file beside `target`; it takes its place, on disk, if the body succeeds."""
    target = target.resolve()  # a link stays one
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        _check_writable(target)
        try:
            temporary.open("xb").close()
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        raise type(error)(
            f"{target} cannot be written ({error.strerror or error}). Give a file in a folder that "
            "exists, where you may write and there is space."
        ) from error


def _check_writable(target: Path) -> None:
    """Raise what writing to `target` itself would: a replacement asks for its folder only."""
    if target.exists():
        target.open("rb+").close()


def _sync_folder(folder: Path) -> None:
    """Bring the new name of a file to disk, where the system lets folders be opened."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
