"""Arrays in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.files.archives import DAMAGED_ARRAYS, declared_arrays, read_arrays
from tvm_xengine.relax_ir.types import Array

_VALIDATION = "validation_"
"""Arrays whose names begin so belong to the validation samples."""


def read_npz(path: Path) -> Data:
    """The arrays of a ``.npz`` file; ``validation_NAME`` holds the validation samples of ``NAME``.

    Pickled objects are refused, because loading them can execute code.

    Raises
    ------
    InvalidDataError
        If the file is no ``.npz`` archive of plain arrays.
    """
    return _data(path, read_arrays)


def declared_npz(path: Path) -> Data:
    """The same by the headers of the file: zeros in the shapes and types of the arrays."""
    return _data(path, declared_arrays)


def _data(path: Path, read: Callable[[Path], Mapping[str, Array]]) -> Data:
    try:
        arrays = read(path)
    except DAMAGED_ARRAYS as error:
        if isinstance(error, FileNotFoundError):
            raise InvalidDataError(f"{path}: there is no such file") from error
        raise InvalidDataError(f"{path} is no .npz archive of plain arrays: {error}") from error
    train = {name: a for name, a in arrays.items() if not name.startswith(_VALIDATION)}
    validation = {
        name.removeprefix(_VALIDATION): a
        for name, a in arrays.items()
        if name.startswith(_VALIDATION)
    }
    return Data(train, validation, str(path))
