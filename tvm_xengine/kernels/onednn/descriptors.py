"""Objects of oneDNN that describe tensors, primitives and how these run."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_xengine.kernels.onednn.enumerators import QUERY_SCRATCHPAD

if TYPE_CHECKING:
    from tvm_xengine.kernels.onednn.library import OnednnLibrary


class MemoryDesc:
    """Shape, layout and element type of a tensor."""

    def __init__(self, library: OnednnLibrary, handle: int, owner: object = None) -> None:
        self.handle = handle
        self._library = library
        self._owner = owner  # keeps alive what a borrowed descriptor is a part of

    @property
    def size_bytes(self) -> int:
        """Bytes of a tensor in this layout, its padding included; 0 for none."""
        return self._library.size_bytes(self.handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryDesc) and self._library.are_equal(self.handle, other.handle)

    __hash__ = None  # type: ignore[assignment]


class PrimitiveDesc:
    """What a primitive will compute, and the layouts it has chosen."""

    def __init__(self, library: OnednnLibrary, handle: int) -> None:
        self.handle = handle
        self._library = library
        weakref.finalize(self, library.destroy, "primitive_desc", handle)

    def memory_desc(self, query: int) -> MemoryDesc:
        """The layout of one of its tensors."""
        return MemoryDesc(self._library, self._library.query_md(self.handle, query), self)

    @property
    def scratchpad_desc(self) -> MemoryDesc:
        """The temporary memory it needs."""
        return self.memory_desc(QUERY_SCRATCHPAD)

    @property
    def implementation(self) -> str:
        """Name of the code that will run, such as ``brgconv:avx512_core``."""
        return self._library.implementation(self.handle)

    @property
    def is_good(self) -> bool:
        """Whether that code is neither the slow reference nor allocates memory when it runs.

        Convolutions by ``gemm`` take memory for packed operands on every call.
        """
        return not {"ref", "gemm"}.intersection(self.implementation.split(":"))


@dataclass(frozen=True)
class Engine:
    """Where primitives run: the processor."""

    handle: int


class PrimitiveAttributes:
    """How a primitive runs, and how it ends."""

    def __init__(self, library: OnednnLibrary, *, adds: bool, added: Sequence[MemoryDesc]) -> None:
        self.handle = library.create_attributes()
        weakref.finalize(self, library.destroy, "primitive_attr", self.handle)
        post_operations = library.post_operations(adds=adds, added=added)
        library.set_attributes(self.handle, post_operations)
        library.destroy("post_ops", post_operations)


Argument = MemoryDesc | PrimitiveDesc | Engine | Sequence[int] | float | int | None
"""What a function that makes a primitive descriptor takes: enumerators are int, dims sequences."""


class _ExecArg(ctypes.Structure):
    """``dnnl_exec_arg_t``."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


ExecArgs = ctypes.Array[_ExecArg]


def exec_args(arguments: Sequence[tuple[int, int]]) -> ExecArgs:
    """An array of (``DNNL_ARG_*``, memory object), as ``dnnl_primitive_execute`` reads it."""
    return (_ExecArg * len(arguments))(*(_ExecArg(*argument) for argument in arguments))
