"""Files of checkpoints of packages: tensors by name, with a sequence number and checksums.

All numbers are little-endian. The header has 48 bytes: the magic ``XECP``, the version (u32), the
sequence number (u64), the hash of the values that the model was exported with (u64), that of its
frozen tensors (u64), the tag of the optimizer (u32), the number of records (u32), their bytes
(u32), and the CRC-32 of the 44 bytes before it. Each record is the length of a name (u16), a type
(u8), a rank (u8), the bytes of the data (u32), the shape (u32 each), the name, and the data; name
and data are padded with zeros to 4 bytes. The file ends with the CRC-32 of all before it.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.training.saved_names import OF_OPTIMIZER

Array = NDArray[np.generic]

MAGIC = b"XECP"
VERSION = 3
"""Version of the format, raised when a field is added or changes its meaning."""
SUFFIX = ".xecp"
"""Of a file with a checkpoint."""

_LEADING = struct.Struct("<4sIQQQIII")
HEADER_BYTES = _LEADING.size + 4
"""The leading fields and their CRC-32."""
TRAILER_BYTES = 4
"""The CRC-32 of header and records."""
_RECORD = struct.Struct("<HBBI")
RECORD_BYTES = _RECORD.size
"""What each record begins with."""

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TYPES = (*_FLOATS, *_INTEGERS, "bool")
"""Types of elements; records hold the position. New ones are added at the end."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    Attributes
    ----------
    tensors
        Values by name (`tvm_xengine.training.saved_names`).
    sequence
        Number of the checkpoint among those in several slots; 0 where it is in none.
    origin
        `hash_of` the tensors that the model was exported with.
    frozen
        `hash_of` those that lie in flash.
    """

    tensors: Mapping[str, Array]
    sequence: int = 0
    origin: int = 0
    frozen: int = 0

    @property
    def optimizer(self) -> int:
        """Tag of the optimizer's slots; state of one tag is of no use to an optimizer of another."""
        return optimizer_tag(self.tensors)


def optimizer_tag(names: Iterable[str]) -> int:
    """The CRC-32 of the names of an optimizer's slots; 0 where it keeps nothing."""
    slots = {name.rpartition("/")[2] for name in names if name.startswith(OF_OPTIMIZER)}
    return zlib.crc32(",".join(sorted(slots)).encode())


def hash_of(tensors: Mapping[str, Array]) -> int:
    """A hash of names, types, shapes and values; 0 of nothing.

    What is the same along a whole axis counts once: the first state of a recurrent layer is a constant
    with a row for each sample, and packages of other batches have the same model.
    """
    if not tensors:
        return 0
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = _once(tensors[name])
        digest.update(f"{name}|{value.dtype}|{value.shape}|".encode())
        digest.update(value.tobytes())
    return int.from_bytes(digest.digest()[:8], "little")


def _once(value: Array) -> Array:
    for axis in range(value.ndim):
        first = value.take([0], axis) if value.shape[axis] > 1 else value
        value = first if np.array_equal(value, np.broadcast_to(first, value.shape)) else value
    return np.array(value, order="C")  # numpy's ascontiguousarray would give a scalar an axis


def numpy_type(name: str) -> np.dtype[np.generic]:
    """The type of an array of one of the `TYPES`."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def record_bytes(name: str, rank: int, data_bytes: int) -> int:
    """Size of a record."""
    return RECORD_BYTES + 4 * rank + _padded(len(name.encode())) + _padded(data_bytes)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, complete or not at all."""
    write_bytes_atomically(path, encoded(checkpoint))


def encoded(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes.

    Raises
    ------
    InvalidStateError
        If a tensor has a type that packages do not have.
    """
    payload = b"".join(_record(name, value) for name, value in checkpoint.tensors.items())
    leading = _LEADING.pack(
        MAGIC,
        VERSION,
        checkpoint.sequence,
        checkpoint.origin,
        checkpoint.frozen,
        checkpoint.optimizer,
        len(checkpoint.tensors),
        len(payload),
    )
    content = leading + _crc(leading) + payload
    return content + _crc(content)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file.

    Raises
    ------
    InvalidStateError
        If it cannot be read, or is no checkpoint, damaged, or of another version.
    """
    try:
        require_regular_file(path)
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
            *_, end = check_beginning(header, path.stat().st_size)
            return decoded(header + file.read(end + TRAILER_BYTES - HEADER_BYTES))
    except OSError as error:
        raise InvalidStateError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidStateError(f"{path}: {error}") from error


def check_beginning(content: bytes, size_bytes: int) -> tuple[int, int, int, int, int, int]:
    """(sequence, origin, frozen, optimizer's tag, tensors, end of the records) as the header says.

    Raises
    ------
    ValueError
        If it is no header of a checkpoint, or the file of so many bytes is shorter than it says.
    """
    if size_bytes < HEADER_BYTES + TRAILER_BYTES:
        raise ValueError(f"{size_bytes} bytes are no checkpoint of a package")
    magic, version, sequence, origin, frozen, tag, count, size = _LEADING.unpack_from(content)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(
            f"expected a checkpoint of a package (magic {MAGIC!r}, version {VERSION}), found"
            f" {magic!r}, {version}"
        )
    if content[_LEADING.size : HEADER_BYTES] != _crc(content[: _LEADING.size]):
        raise ValueError("the checksum of the header does not match: the checkpoint is damaged")
    end = HEADER_BYTES + size
    if size_bytes < end + TRAILER_BYTES:
        raise ValueError(
            f"the checkpoint is cut off: {size_bytes} of {end + TRAILER_BYTES} bytes are there"
        )
    return sequence, origin, frozen, tag, count, end


def decoded(content: bytes) -> Checkpoint:
    """The checkpoint in bytes; what follows it is not read.

    Raises
    ------
    ValueError
        If it is no checkpoint, damaged, or of another version.
    """
    sequence, origin, frozen, tag, count, end = check_beginning(content, len(content))
    if content[end : end + TRAILER_BYTES] != _crc(content[:end]):
        raise ValueError("the checksum does not match: the checkpoint is damaged")
    checkpoint = Checkpoint(_records(content[HEADER_BYTES:end], count), sequence, origin, frozen)
    if checkpoint.optimizer != tag:
        raise ValueError("the tag of the optimizer is not that of its tensors")
    return checkpoint


def _records(payload: bytes, count: int) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    at = 0
    for _ in range(count):
        try:
            name_bytes, code, rank, size = _RECORD.unpack_from(payload, at)
            at += RECORD_BYTES
            shape = struct.unpack_from(f"<{rank}I", payload, at)
        except struct.error as error:
            raise ValueError("a record ends behind the checkpoint") from error
        at += 4 * rank
        name = payload[at : at + name_bytes].decode()
        at += _padded(name_bytes)
        dtype = _type_of(code)
        if at + size > len(payload) or math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{name!r} of shape {shape} has {size} bytes of {dtype}")
        if name in tensors:
            raise ValueError(f"{name!r} is there twice")
        tensors[name] = np.frombuffer(payload[at : at + size], dtype).reshape(shape).copy()
        at += _padded(size)
    if at != len(payload):
        raise ValueError(f"{len(payload) - at} bytes behind the last record belong to none")
    return tensors


def _record(name: str, value: Array) -> bytes:
    if str(value.dtype) not in TYPES:
        raise InvalidStateError(
            f"{name} has type {value.dtype}, which packages do not have; they have {', '.join(TYPES)}"
        )
    data, text = np.ascontiguousarray(value).tobytes(), name.encode()
    head = _RECORD.pack(len(text), TYPES.index(str(value.dtype)), value.ndim, len(data))
    shape = struct.pack(f"<{value.ndim}I", *value.shape)
    return head + shape + _with_padding(text) + _with_padding(data)


def _type_of(code: int) -> np.dtype[np.generic]:
    if code >= len(TYPES):
        raise ValueError(f"a tensor has the unknown type {code}")
    return numpy_type(TYPES[code])


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _with_padding(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _crc(content: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(content))
