"""The memory of a device that is a file: read and written piece by piece, never held in memory."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, tirx

from tvm_xengine.errors import InvalidPlatformError, StorageError
from tvm_xengine.scheduling.sizes import format_bytes, round_up, tensor_bytes

READ, WRITE = "xengine_read_file", "xengine_write_file"
"""Functions of `file_functions`: both take bytes in memory, the number of an open file, and a place."""
_CALLED = {READ: "pread", WRITE: "pwrite"}
MOST_BYTES = 1 << 30
"""Bytes of one call; Linux moves no more than 2 GiB - 4 KiB at once."""
_PIECE_BYTES = 1 << 24
"""Bytes in memory while a file is filled: enough that calls take no time beside the writing."""
_LEAST_BLOCK_BYTES = 512
"""No disk has smaller blocks."""
FAILED = "storage failed"
"""How messages about files begin."""


class FileMemory:
    """A file without a name in a folder; it is gone with the process, whatever ends that.

    Steps copy to and from it by `file_functions`; `tensor` reads and writes in between.

    Parameters
    ----------
    alignment_bytes
        Of the places and sizes that steps move, in memory and in the file. Where the system takes such
        pieces, they go between memory and the disk directly, and take no memory of its cache.

    Raises
    ------
    InvalidPlatformError
        If the folder has no room for so many bytes, or no file can be made there.

    Attributes
    ----------
    file
        Number of the open file, as steps use it.
    block_bytes
        Steps move multiples of so many bytes; 1 where the system's cache is in between.
    folder
        Where it lies.
    """

    address = 0
    """Places count from the beginning of the file, which is aligned to anything."""

    def __init__(self, size_bytes: int, folder: str, *, alignment_bytes: int = 1) -> None:
        self.size_bytes, self.folder = size_bytes, folder
        # Whole blocks, and one more than is looked at to find out whether they can be moved.
        least_bytes = 2 * alignment_bytes if alignment_bytes >= _LEAST_BLOCK_BYTES else 1
        reserved_bytes = max(least_bytes, round_up(size_bytes, alignment_bytes))
        try:
            with tempfile.TemporaryFile(dir=storage_folder(folder)) as made:
                os.posix_fallocate(made.fileno(), 0, reserved_bytes)
                self.buffered_file = os.dup(made.fileno())
        except OSError as error:
            raise InvalidPlatformError(
                f"cannot reserve {format_bytes(size_bytes)} in a file in the folder {folder}:"
                f" {error.strerror}"
            ) from error
        weakref.finalize(self, os.close, self.buffered_file)
        direct = _opened_directly(self.buffered_file, alignment_bytes)
        self.file = self.buffered_file if direct is None else direct
        self.block_bytes = 1 if direct is None else alignment_bytes
        if direct is not None:
            weakref.finalize(self, os.close, direct)

    def tensor(self, start_byte: int, shape: tuple[int, ...], dtype: str) -> FileTensor:
        """A tensor at `start_byte`."""
        return FileTensor(self, start_byte, shape, dtype)

    def fill(self, byte: int) -> None:
        """Overwrite everything."""
        for done in range(0, self.size_bytes, _PIECE_BYTES):
            size = min(_PIECE_BYTES, self.size_bytes - done)
            self.tensor(done, (size,), "uint8").copyfrom(np.full(size, byte, np.uint8))


def _opened_directly(file: int, alignment_bytes: int) -> int | None:
    """The same file once more, past the system's cache; None where such pieces cannot be moved so.

    What a disk takes differs, so a piece is read: of the alignment's size, at such a place of the file
    and of memory.
    """
    if alignment_bytes < _LEAST_BLOCK_BYTES:
        return None
    try:
        direct = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT)
    except OSError:
        return None
    try:
        with (
            mmap.mmap(-1, 2 * max(alignment_bytes, mmap.PAGESIZE)) as memory,
            memoryview(memory) as m,
        ):
            piece = m[alignment_bytes : 2 * alignment_bytes]
            taken = os.preadv(direct, [piece], alignment_bytes) == alignment_bytes
            piece.release()
    except OSError:
        taken = False
    if not taken:
        os.close(direct)
    return direct if taken else None


@dataclass(frozen=True)
class FileTensor:
    """A tensor that lies in a file."""

    memory: FileMemory
    start_byte: int
    shape: tuple[int, ...]
    dtype: str

    def parts(self) -> Iterator[FileTensor]:
        """Flat tensors of a few MiB that make up this one, in order."""
        count, size_bytes = math.prod(self.shape), tensor_bytes((), self.dtype)
        most = _PIECE_BYTES // size_bytes
        for first in range(0, count, most):
            shape = (min(most, count - first),)
            yield FileTensor(self.memory, self.start_byte + first * size_bytes, shape, self.dtype)

    def copyfrom(self, values: NDArray[np.generic]) -> None:
        """Write all values.

        Raises
        ------
        StorageError
            If the file takes less.
        """
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self._move(os.pwrite, data, "written to")

    def numpy(self) -> NDArray[np.generic]:
        """A copy in memory.

        Raises
        ------
        StorageError
            If the file gives less.
        """
        data = np.empty(tensor_bytes(self.shape, self.dtype), np.uint8)
        self._move(lambda file, piece, at: os.preadv(file, [piece], at), data.data, "read from")
        return data.view(np.dtype(self.dtype)).reshape(self.shape)

    def __dlpack__(self, **_: object) -> NoReturn:
        raise BufferError("expected a tensor in memory, got one in a file; ask for a copy")

    def _move(
        self, move: Callable[[int, memoryview, int], int], data: memoryview, verb: str
    ) -> None:
        done = 0
        while done < len(data):
            try:
                moved = move(self.memory.buffered_file, data[done:], self.start_byte + done)
            except OSError as error:
                said = f"{_message(verb)} in {self.memory.folder}"
                raise StorageError(f"{said}: {error.strerror}") from error
            if not moved:
                raise StorageError(f"{_message(verb)} in {self.memory.folder}")
            done += moved


def storage_folder(folder: str) -> Path:
    """The folder of that name; `InvalidPlatformError` where there is none."""
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise InvalidPlatformError(
            f"expected a folder for the file of a device, found none at {path}; make it first"
        )
    return path


def file_functions() -> dict[ir.GlobalVar, tirx.PrimFunc]:
    """Functions that move bytes between memory and a file; they fail where not all are moved."""
    return {ir.GlobalVar(name): _function(name) for name in _CALLED}


@cache
def compiled_file_functions() -> tvm.runtime.Module:
    """The same, to be called from Python."""
    return tvm.compile(tvm.IRModule(file_functions()), target="llvm").mod


def _function(name: str) -> tirx.PrimFunc:
    size, file, place = (tirx.Var(n, "int64") for n in ("size_bytes", "file", "place"))
    memory = tirx.decl_buffer((size,), "uint8", name="memory")
    moved = tirx.call_extern(
        "int64", _CALLED[name], tirx.Cast("int32", file), memory.data, size, place
    )
    verb = "read from" if name == READ else "written to"
    body = tirx.AssertStmt(
        moved == size,
        ir.StringImm("RuntimeError"),
        [ir.StringImm(_message(verb))],
    )
    return tirx.PrimFunc([memory, file, place], body).with_attr("global_symbol", name)


def _message(verb: str) -> str:
    return f"{FAILED}: bytes could not be {verb} the file of a device"
