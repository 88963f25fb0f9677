"""Arrays in ``.npz`` files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError
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
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise InvalidDataError(
                    f"{path} holds one array; expected a .npz archive of named arrays"
                )
            arrays: dict[str, Array] = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
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
