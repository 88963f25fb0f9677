"""Zip archives and the arrays in them, of which any byte may be damaged."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.checks.regular_file import memory_bytes, require_regular_file

DAMAGED_ZIP: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,  # of bz2, and of seeking before the beginning
    RuntimeError,  # an encrypted member; NotImplementedError, an unknown compression
    KeyError,
    ValueError,
)
"""What `zipfile` raises for an archive that is damaged or crafted."""

DAMAGED_ARRAYS: tuple[type[Exception], ...] = (
    *DAMAGED_ZIP,
    MemoryError,
    SyntaxError,
    TokenError,
    TypeError,
)
"""What `read_arrays` raises in addition: NumPy evaluates headers as Python literals."""


_NUMPY = b"\x93NUMPY"
"""How a file with a single array begins, which is told apart below."""


_HEADERS: dict[tuple[int, ...], Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By version of the format; another one is for names of fields beyond Latin-1."""


def _require_different(names: Sequence[str]) -> None:
    """Refuse an archive with two members of a name, of which readers take the one or the other."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"it has two members called {twice[0]!r}")


def _require_room(archive: zipfile.ZipFile) -> None:
    """Refuse a small archive of what is larger than memory when it is unpacked."""
    unpacked_bytes = sum(member.file_size for member in archive.infolist())
    if unpacked_bytes > memory_bytes():
        raise ValueError(
            f"its arrays take {unpacked_bytes} bytes, and this machine's memory has {memory_bytes()}"
        )


def _require_archive(file: Path) -> None:
    require_regular_file(file)
    with file.open("rb") as begun:
        if begun.read(len(_NUMPY))[: len(_NUMPY)] != _NUMPY and not zipfile.is_zipfile(file):
            raise ValueError("it is no zip file")  # which NumPy takes for a pickle


def declared_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Zeros in the shapes and types of the arrays of a ``.npz`` archive, which take no memory.

    Only headers are read. What has none that is known is left out.

    Raises
    ------
    DAMAGED_ARRAYS
        If it is no archive, or a header is damaged, of objects, or of another size than its member.
    """
    _require_archive(file)
    with zipfile.ZipFile(file) as archive:
        return _declared_in(archive)


def _declared_in(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    _require_room(archive)
    declared = {}
    for info in archive.infolist():
        with archive.open(info) as member:
            if member.read(len(_NUMPY)) != _NUMPY:
                continue
            version = tuple(member.read(2))
            if version in _HEADERS:
                array = _declared(member, version, info)
                declared[info.filename.removesuffix(".npy")] = array
    return declared


def _declared(member: IO[bytes], version: tuple[int, ...], info: zipfile.ZipInfo) -> NDArray[Any]:
    """Zeros in the shape and type that the header of a member declares.

    NumPy reads as many numbers as the header says, however few there are, and its messages on
    headers quote them and advise to allow pickles.
    """
    name = info.filename
    try:
        shape, _, dtype = _HEADERS[version](member)
        element = np.zeros((), dtype)
    except DAMAGED_ARRAYS as error:
        raise ValueError(f"the header of its member {name!r} is damaged") from error
    if dtype.hasobject:
        raise ValueError(f"its member {name!r} holds objects, which loading executes")
    held_bytes = info.file_size - member.tell()
    if any(extent < 0 for extent in shape) or prod(shape) * dtype.itemsize != held_bytes:
        raise ValueError(
            f"its member {name!r} holds {held_bytes} bytes of numbers,"
            " and its header declares another size"
        )
    return np.broadcast_to(element, shape)


def read_arrays(file: Path | IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a ``.npz`` archive; pickled objects are refused, as loading them runs code.

    Raises
    ------
    DAMAGED_ARRAYS
        If it is no archive, or a member is no plain array.
    """
    if isinstance(file, Path):
        _require_archive(file)
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise ValueError("it holds one array; expected a .npz archive of named arrays")
    with loaded as archive:
        _require_different(archive.files)
        _declared_in(archive.zip)
        arrays = {name: archive[name] for name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"its member {name!r} is no array")
    return arrays
