"""oneDNN's shared library: descriptors of memory, primitives and what they need.

Names and numbers are those of the C API of oneDNN 3.x (``dnnl.h``, ``dnnl_types.h``).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.library.matrices import row_major
from tvm_xengine.kernels.onednn.descriptors import (
    Argument,
    Engine,
    MemoryDesc,
    PrimitiveAttributes,
    PrimitiveDesc,
)
from tvm_xengine.kernels.onednn.enumerators import BINARY_ADD, QUERY_IMPLEMENTATION
from tvm_xengine.kernels.threads.settings import sharing_cores

NAME = "onednn"
"""Name of the kernel source."""

DISTRIBUTION = "onednn-cpu-gomp"
"""The package on PyPI that carries the library."""

# Values of enumerations, and the largest rank, of dnnl_types.h and dnnl_common_types.h.
_UNDEFINED = 0
_CPU = 1
_F32 = 3
_S32 = 4
_IN_ORDER = 1
_TAG_ANY = 1
_SCRATCHPAD_USER = 1
_UNIMPLEMENTED = 3
_MAX_DIMS = 12
_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    4: "no more implementations",
    5: "runtime error",
}


class OnednnLibrary:
    """The loaded library with an engine and a stream.

    Compiled kernels call its functions by their names, so these become visible to the process.

    Parameters
    ----------
    path
        Of the shared library.

    Raises
    ------
    LibraryError
        When it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._dll = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise LibraryError(f"oneDNN cannot be loaded: {error}") from error
        self._dll.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self._dll.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.engine = Engine(self._create("engine", ctypes.c_int(_CPU), ctypes.c_size_t(0)))
        engine = _pointer(self.engine.handle)
        self.stream = self._create("stream", engine, ctypes.c_uint(_IN_ORDER))

    def plain(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> MemoryDesc:
        """The float32 layout with these strides (in elements), by default row-major."""
        return self._plain(shape, strides or row_major(shape), _F32)

    def plain_int32(self, shape: Sequence[int]) -> MemoryDesc:
        """The row-major layout of int32 numbers."""
        return self._plain(shape, row_major(shape), _S32)

    def any_layout(self, shape: Sequence[int]) -> MemoryDesc:
        """A tensor whose layout a primitive may choose."""
        return self._memory_desc(
            self._create("memory_desc", len(shape), _dims(shape), _F32, _TAG_ANY, of="with_tag")
        )

    def attributes(
        self, *, adds: bool = False, added: Sequence[MemoryDesc] = ()
    ) -> PrimitiveAttributes:
        """Attributes of a primitive that is given its temporary memory.

        Parameters
        ----------
        adds
            Whether it adds to what its result holds, instead of writing over it.
        added
            Tensors that broadcast to its result and are added to it; with `adds` there are none.
            Number k of them is the argument ``arg_added(k)``.
        """
        return PrimitiveAttributes(self, adds=adds, added=added)

    def describe(
        self, kind: str, *arguments: Argument, attributes: PrimitiveAttributes
    ) -> PrimitiveDesc | None:
        """The descriptor that ``dnnl_<kind>_primitive_desc_create`` makes.

        None where oneDNN has no implementation.

        Raises
        ------
        LibraryError
            When it refuses the arguments.
        """
        return self._describe(kind, (self.engine, *arguments), attributes)

    def describe_good(
        self, kind: str, *arguments: Argument, attributes: PrimitiveAttributes
    ) -> PrimitiveDesc | None:
        """The same with the first implementation that is worth having, None where none is."""
        desc = self.describe(kind, *arguments, attributes=attributes)
        while desc is not None and not desc.is_good:
            if self._dll.dnnl_primitive_desc_next_impl(_pointer(desc.handle)):
                return None
        return desc

    def describe_reorder(self, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc:
        """The primitive that copies a tensor into another layout."""
        arguments: tuple[Argument, ...] = (source, self.engine, target, self.engine)
        desc = self._describe("reorder", arguments, self.attributes())
        if desc is None:
            raise LibraryError("oneDNN cannot copy between two of its own layouts")
        return desc

    def create_primitive(self, desc: PrimitiveDesc) -> int:
        """A primitive, which the caller destroys."""
        return self._create("primitive", _pointer(desc.handle))

    def create_memory(self, desc: MemoryDesc) -> int:
        """A memory object that points nowhere yet, which the caller destroys."""
        engine = _pointer(self.engine.handle)
        return self._create("memory", _pointer(desc.handle), engine, _pointer(None))

    def destroy(self, kind: str, handle: int) -> None:
        """Destroy an object of oneDNN."""
        getattr(self._dll, f"dnnl_{kind}_destroy")(_pointer(handle))

    def size_bytes(self, desc: int) -> int:
        """Bytes of a tensor with a memory descriptor; 0 for none."""
        return int(self._dll.dnnl_memory_desc_get_size(_pointer(desc))) if desc else 0

    def are_equal(self, one: int, other: int) -> bool:
        """Whether two memory descriptors are the same."""
        return bool(self._dll.dnnl_memory_desc_equal(_pointer(one), _pointer(other)))

    def query_md(self, desc: int, query: int) -> int:
        """A memory descriptor that belongs to a primitive descriptor; 0 for none."""
        return int(self._dll.dnnl_primitive_desc_query_md(_pointer(desc), query, 0) or 0)

    def implementation(self, desc: int) -> str:
        """Name of the implementation of a primitive descriptor."""
        name = ctypes.c_char_p()
        status = self._dll.dnnl_primitive_desc_query(
            _pointer(desc), QUERY_IMPLEMENTATION, 0, ctypes.byref(name)
        )
        _check(status, "primitive_desc_query")
        return (name.value or b"").decode()

    def post_operations(self, *, adds: bool, added: Sequence[MemoryDesc]) -> int:
        """What is done to every element of a result, which the caller destroys."""
        handle = self._create("post_ops")
        if adds:
            status = self._dll.dnnl_post_ops_append_sum(
                _pointer(handle), ctypes.c_float(1), ctypes.c_int32(0), ctypes.c_int(_UNDEFINED)
            )
            _check(status, "post_ops_append_sum")
        for desc in added:
            status = self._dll.dnnl_post_ops_append_binary(
                _pointer(handle), BINARY_ADD, _pointer(desc.handle)
            )
            _check(status, "post_ops_append_binary")
        return handle

    def set_attributes(self, attributes: int, post_operations: int) -> None:
        """Let a primitive be given its temporary memory, and end with these operations."""
        handle = _pointer(attributes)
        _check(
            self._dll.dnnl_primitive_attr_set_scratchpad_mode(handle, _SCRATCHPAD_USER),
            "scratchpad",
        )
        _check(
            self._dll.dnnl_primitive_attr_set_post_ops(handle, _pointer(post_operations)),
            "post_ops",
        )

    def create_attributes(self) -> int:
        """Attributes, which the caller destroys."""
        return self._create("primitive_attr")

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Let this thread's primitives be made for `count` threads."""
        before = int(self._dll.omp_get_max_threads())
        self._dll.omp_set_num_threads(count)
        try:
            yield
        finally:
            self._dll.omp_set_num_threads(before)

    def _describe(
        self, kind: str, arguments: Sequence[Argument], attributes: PrimitiveAttributes
    ) -> PrimitiveDesc | None:
        handle = ctypes.c_void_p()
        create = getattr(self._dll, f"dnnl_{kind}_primitive_desc_create")
        status = create(
            ctypes.byref(handle), *map(_argument, arguments), _pointer(attributes.handle)
        )
        if status == _UNIMPLEMENTED:
            return None
        _check(status, kind)
        return PrimitiveDesc(self, _value(handle))

    def _plain(self, shape: Sequence[int], strides: Sequence[int], dtype: int) -> MemoryDesc:
        return self._memory_desc(
            self._create(
                "memory_desc", len(shape), _dims(shape), dtype, _dims(strides), of="with_strides"
            )
        )

    def _memory_desc(self, handle: int) -> MemoryDesc:
        desc = MemoryDesc(self, handle)
        weakref.finalize(desc, self.destroy, "memory_desc", handle)
        return desc

    def _create(self, kind: str, *arguments: object, of: str = "") -> int:
        handle = ctypes.c_void_p()
        name = f"dnnl_{kind}_create_{of}" if of else f"dnnl_{kind}_create"
        _check(getattr(self._dll, name)(ctypes.byref(handle), *arguments), name)
        return _value(handle)


@cache
def load_onednn() -> OnednnLibrary:
    """The library of the package `onednn-cpu-gomp`, loaded once.

    Raises
    ------
    LibraryError
        When it is not installed or cannot be loaded here.
    """
    try:
        installed = files(DISTRIBUTION) or []
    except PackageNotFoundError:
        installed = []
    paths = [Path(str(file.locate())) for file in installed if file.name.startswith("libdnnl.so")]
    if not paths:
        raise LibraryError(
            f'oneDNN is not installed; pip install "tvm-xengine[onednn]" brings {DISTRIBUTION}'
        )
    with sharing_cores():
        return OnednnLibrary(max(paths, key=lambda path: len(path.name)))


def onednn_version() -> str:
    """Version of the package that carries the library."""
    return version(DISTRIBUTION)


def _pointer(handle: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(handle)


def _value(handle: ctypes.c_void_p) -> int:
    return int(handle.value or 0)


def _dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * _MAX_DIMS)(*values)


def _argument(value: Argument) -> object:
    if value is None:
        return _pointer(None)
    if isinstance(value, MemoryDesc | PrimitiveDesc | Engine):
        return _pointer(value.handle)
    if isinstance(value, int):
        return ctypes.c_int(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return _dims(value)


def _check(status: int, what: str) -> None:
    if status:
        reason = _STATUS.get(status, f"status {status}")
        raise LibraryError(f"oneDNN: {what} failed: {reason}")
