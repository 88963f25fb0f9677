"""Memory that several processes of a host see."""

from __future__ import annotations

import mmap
import os
import re

import numpy as np

from tvm_xengine.runtime.storage import HostMemory

_PLACE = re.compile(r"/proc/[0-9]+/fd/[0-9]+")


class MappedMemory(HostMemory):
    """Memory of the processor that other processes of this host can map, too; it has no name of its own.

    Parameters
    ----------
    file
        Number of the open file behind it.
    """

    def __init__(self, file: int, size_bytes: int) -> None:
        self._file = file
        self._mapping = mmap.mmap(file, max(1, size_bytes))
        self._bytes = np.frombuffer(self._mapping, "uint8", size_bytes)
        self.size_bytes = size_bytes
        self.address = int(self._bytes.ctypes.data)

    @classmethod
    def create(cls, size_bytes: int) -> MappedMemory:
        """New memory, all zero, that belongs to no file system."""
        file = os.memfd_create("tvm_xengine")
        os.ftruncate(file, max(1, size_bytes))
        return cls(file, size_bytes)

    @classmethod
    def open(cls, place: str, size_bytes: int) -> MappedMemory:
        """The memory of another process, by what it calls the :attr:`place`.

        Raises
        ------
        ValueError
            If it is no such place.
        """
        if not _PLACE.fullmatch(place):
            raise ValueError(f"expected /proc/PROCESS/fd/FILE, got {place!r}")
        return cls(os.open(place, os.O_RDWR), size_bytes)

    @property
    def place(self) -> str:
        """Where another process of the same user opens it, while it is open here."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def write(self, content: bytes) -> None:
        """Write from the first byte on."""
        self._bytes[: len(content)] = np.frombuffer(content, "uint8")

    def read(self) -> bytes:
        """A copy of all bytes."""
        return self._bytes.tobytes()

    def close(self) -> None:
        """No process can open it any more; it stays where it is mapped."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
