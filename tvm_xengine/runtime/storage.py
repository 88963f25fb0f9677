"""Arenas in real memory, and tensors that are views into them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.script import relax as R

from tvm_xengine.checks.regular_file import memory_bytes
from tvm_xengine.errors import StorageError
from tvm_xengine.kernels.device_kinds import device_of
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.file_memory import FileMemory, FileTensor
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.sizes import tensor_bytes

POISON = 0xA5
"""Fills memory that no kernel has written: as float32 it is -2.9e-16 and as int32 a negative number, so
what reads it shows in results, and a write of it by chance is unlikely."""

_ALLOCATOR_ALIGNMENT_BYTES = 64
"""TVM aligns what it allocates to this (`kAllocAlignment` of its device API)."""

_HUGE_PAGES_FROM_BYTES = 4 << 20
"""Numpy asks for huge pages from this size on, too. With them steps of ResNet-18 and U-Net took 2 to 4 %
less time, and those of 10 MiB as long."""

_HOST = tvm.cpu().dlpack_device_type()

StoredTensor: TypeAlias = tvm.runtime.Tensor | FileTensor
"""A tensor in memory of a device, or in a file."""


PINNED = tvm_ffi.Device(3, 0)
"""DLPack's kDLCUDAHost: memory of the host from CUDA's allocator."""


class HostMemory:
    """Memory of the processor; numpy's views of it keep it alive and have no byte offset.

    `PINNED` is memory of the processor, too, which a GPU copies from and to by itself.
    """

    def __init__(self, size_bytes: int, device: tvm.runtime.Device) -> None:
        if device == PINNED:
            # CUDA has allocated it, and it is memory of the processor for what works in it.
            whole = tvm.runtime.empty((size_bytes,), "uint8", device)
            self._bytes = _bytes_of(whole, 0, size_bytes)
        else:
            self._bytes = np.frombuffer(_pages(size_bytes), np.uint8, size_bytes)
        self.size_bytes = size_bytes
        self.address = int(self._bytes.ctypes.data)

    def fill(self, byte: int) -> None:
        """Overwrite everything."""
        self._bytes.fill(byte)

    def tensor(self, start_byte: int, shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
        """A tensor at `start_byte`."""
        piece = self._bytes[start_byte : start_byte + tensor_bytes(shape, dtype)]
        # TVM gives the type, because numpy's DLPack does not know all of them (bfloat16).
        return tvm_ffi.from_dlpack(piece)._create_view(shape, dtype)


class DeviceMemory:
    """Memory of any device, as a storage object of TVM's virtual machine, which its tensors own."""

    def __init__(self, size_bytes: int, device: tvm.runtime.Device) -> None:
        machine = relax.VirtualMachine(_allocator(), device, memory_cfg="naive")
        storage = machine["allocate"](tvm_ffi.Shape([max(1, size_bytes)]))
        allocate = tvm.get_global_func("vm.builtin.alloc_tensor")
        self._whole = allocate(storage, 0, tvm_ffi.Shape([size_bytes]), "uint8")
        self.size_bytes = size_bytes
        self.address = int(self._whole.data_ptr())

    def fill(self, byte: int) -> None:
        """Overwrite everything."""
        self._whole.copyfrom(np.full(self.size_bytes, byte, dtype=np.uint8))

    def tensor(self, start_byte: int, shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
        """A tensor at `start_byte`."""
        piece = _PieceOfDevice(self._whole, start_byte, tensor_bytes(shape, dtype))
        return tvm_ffi.from_dlpack(piece)._create_view(shape, dtype)


class _PieceOfDevice:
    """Bytes of a tensor from one of them on, which own it, for `from_dlpack`.

    TVM's own views into memory of a device count from its beginning, and kernels refuse those.
    """

    def __init__(self, whole: tvm.runtime.Tensor, start_byte: int, size_bytes: int) -> None:
        self._device = (int(whole.device.dlpack_device_type()), int(whole.device.index))
        self._bytes = _bytes_of(whole, start_byte, size_bytes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **_: object) -> Any:
        """Numpy's description of the bytes, which it does not touch, with the device that they are on."""
        described = self._bytes.__dlpack__()
        address = _address_in_capsule(described, b"dltensor")
        # DLManagedTensor begins with a pointer to the data; kind and number of the device follow.
        device = (ctypes.c_int32 * 2).from_address(address + ctypes.sizeof(ctypes.c_void_p))
        device[0], device[1] = self._device
        return described


def _bytes_of(whole: tvm.runtime.Tensor, start_byte: int, size_bytes: int) -> NDArray[np.uint8]:
    """Bytes of a tensor, which own it."""
    there: Any = (ctypes.c_uint8 * size_bytes).from_address(whole.data_ptr() + start_byte)
    there.owner = whole
    return np.ctypeslib.as_array(there)


def _pages(size_bytes: int) -> mmap.mmap:
    """Memory that begins with a page: of the system, since TVM's does not and has no huge pages."""
    pages = mmap.mmap(-1, max(1, size_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size_bytes >= _HUGE_PAGES_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _address_in_capsule(capsule: object, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address: int = function(capsule, name)
    return address


@cache
def _allocator() -> relax.VMExecutable:
    """A program for the virtual machine that allocates a given number of bytes."""
    builder = relax.BlockBuilder()
    size_bytes = tirx.Var("size_bytes", "int64")
    parameter = relax.Var("shape", relax.ShapeType([size_bytes]))
    with builder.function("allocate", [parameter]):
        storage = R.vm.alloc_storage(relax.ShapeExpr([size_bytes]), 0, "uint8")
        builder.emit_func_output(builder.emit(storage))
    lower = [relax.transform.VMShapeLower(), relax.transform.AttachGlobalSymbol()]
    return relax.build(
        builder.get(),
        tvm.target.Target({"kind": "llvm"}),
        relax_pipeline=tvm.transform.Sequential(lower),
    )


class Arena:
    """The memory of one device: a single allocation, and views at fixed offsets in it.

    Parameters
    ----------
    size_bytes
        Planned size.
    device
        Where the memory is.
    alignment_bytes
        Of the arena's first byte.
    guard_bytes
        Additional bytes behind the arena, in which `guard_is_intact` shows stray writes.
    folder
        Where a file lies that is the memory; None is memory of the device.
    is_pinned
        Whether memory of the processor comes from CUDA.
    memory
        Makes the memory in place of these, from its size.
    """

    def __init__(
        self,
        size_bytes: int,
        device: tvm.runtime.Device,
        *,
        alignment_bytes: int = 64,
        guard_bytes: int = 0,
        folder: str | None = None,
        is_pinned: bool = False,
        memory: Callable[[int], HostMemory] | None = None,
    ) -> None:
        self.size_bytes = size_bytes
        self.guard_bytes = guard_bytes
        self.device = device
        is_on_host = device.dlpack_device_type() == _HOST
        make: Callable[[int], HostMemory | DeviceMemory | FileMemory]
        if memory is not None:
            make, aligned_bytes = memory, mmap.PAGESIZE
        elif folder is not None:
            make = partial(FileMemory, folder=folder, alignment_bytes=alignment_bytes)
            aligned_bytes = alignment_bytes  # places in a file count from its beginning
        elif is_on_host and not is_pinned:
            make, aligned_bytes = partial(HostMemory, device=device), mmap.PAGESIZE
        elif is_on_host:
            make, aligned_bytes = partial(HostMemory, device=PINNED), _ALLOCATOR_ALIGNMENT_BYTES
        else:
            make, aligned_bytes = partial(DeviceMemory, device=device), _ALLOCATOR_ALIGNMENT_BYTES
        is_aligned = alignment_bytes <= aligned_bytes
        self._memory = make(size_bytes + guard_bytes + (0 if is_aligned else alignment_bytes))
        self._first_byte = 0 if is_aligned else -self._memory.address % alignment_bytes
        self._bytes = self.view(ArenaView("", 0, (size_bytes + guard_bytes,), "uint8"))

    @property
    def file(self) -> int | None:
        """Number of the open file that is the memory; None where it is no file."""
        return self._memory.file if isinstance(self._memory, FileMemory) else None

    @property
    def block_bytes(self) -> int:
        """A file is moved in multiples of so many bytes."""
        return self._memory.block_bytes if isinstance(self._memory, FileMemory) else 1

    def file_place(self, view: ArenaView) -> int:
        """Where in the file a view begins."""
        return self._first_byte + view.offset_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the device's allocator gave to this arena, without the guard."""
        return self._memory.size_bytes - self.guard_bytes

    def view(self, view: ArenaView) -> Any:
        """A tensor whose data begins at ``view.offset_bytes``, with no byte offset of its own.

        It is one of TVM, or a `FileTensor` where the memory is a file. It keeps the memory of the
        arena alive, so that it may be used for longer than the arena.

        Raises
        ------
        ValueError
            If it does not lie inside the arena and its guard.
        """
        size_bytes = tensor_bytes(view.shape, view.dtype)
        end_bytes = self.size_bytes + self.guard_bytes
        if not 0 <= view.offset_bytes <= end_bytes - size_bytes:
            raise ValueError(
                f"expected a view inside the {end_bytes} bytes of the arena, got {view}"
            )
        return self._memory.tensor(self._first_byte + view.offset_bytes, view.shape, view.dtype)

    def read(self) -> NDArray[np.uint8]:
        """A copy of the arena's bytes, the guard included."""
        return np.asarray(self._bytes.numpy())

    def poison(self, byte: int = POISON) -> None:
        """Overwrite everything, including the guard, with a byte that no result may depend on."""
        self._memory.fill(byte)

    def guard_is_intact(self, byte: int = POISON) -> bool:
        """Whether nothing was written behind the arena since it was poisoned with `byte`."""
        return bool((self.read()[self.size_bytes :] == byte).all())

    def touched_bytes(self, byte: int = POISON) -> int:
        """End of the highest byte that was written since the arena was poisoned with `byte`."""
        written = np.flatnonzero(self.read() != byte)
        return int(written[-1]) + 1 if len(written) else 0


def allocate_arenas(
    platform: Platform,
    arena_bytes: Mapping[str, int],
    *,
    guard_bytes: int = 0,
    memories: Mapping[str, Callable[[int], HostMemory]] | None = None,
) -> Mapping[str, Arena]:
    """One arena of the planned size for each device that has a size.

    `memories` makes the memory of some devices, from its size.

    Raises
    ------
    StorageError
        If the devices whose memory is this machine's need more than it has.
    """
    _require_memory(platform, arena_bytes)
    is_pinned = can_overlap() and any(
        is_for_cuda(runtime_device(device.target)) for device in platform.devices
    )
    return {
        device.name: Arena(
            arena_bytes[device.name],
            runtime_device(device.target),
            alignment_bytes=platform.alignment_bytes,
            guard_bytes=guard_bytes,
            folder=device.folder,
            is_pinned=is_pinned,
            memory=(memories or {}).get(device.name),
        )
        for device in platform.devices
        if device.name in arena_bytes
    }


def _require_memory(platform: Platform, arena_bytes: Mapping[str, int]) -> None:
    """Refuse arenas that the system would promise, and then end the process that writes to them."""
    needed_bytes = sum(
        arena_bytes.get(device.name, 0)
        for device in platform.devices
        if device.folder is None and runtime_device(device.target).dlpack_device_type() == _HOST
    )
    if needed_bytes > (held_bytes := memory_bytes()):
        raise StorageError(
            f"the step needs {needed_bytes} bytes of this machine's memory, which has {held_bytes}: give a"
            " budget below that, or take a smaller batch"
        )


def copy_tensor(src: StoredTensor, dst: StoredTensor) -> None:
    """Copy a tensor to another of its shape and type; both lie in files, or neither does.

    Raises
    ------
    StorageError
        If a file cannot be read or written.
    """
    if isinstance(src, FileTensor) and isinstance(dst, FileTensor):
        for part, other in zip(src.parts(), dst.parts(), strict=True):
            other.copyfrom(part.numpy())
    elif isinstance(src, FileTensor) or isinstance(dst, FileTensor):
        raise TypeError("expected two tensors in files or two in memory, got one of each")
    else:
        src.copyto(dst)


def pieces_of(tensor: StoredTensor) -> Iterator[NDArray[np.generic]]:
    """The values of a tensor in arrays, which are small if it lies in a file."""
    if isinstance(tensor, FileTensor):
        yield from (part.numpy() for part in tensor.parts())
    elif tensor.device.dlpack_device_type() == _HOST:
        yield shared_array(tensor)
    else:
        yield tensor.numpy()


def shared_array(tensor: StoredTensor) -> NDArray[np.generic]:
    """A read-only array in the memory of a tensor, which it keeps alive.

    Raises
    ------
    BufferError
        If the tensor is not in memory of the processor.
    """
    if isinstance(tensor, FileTensor):
        tensor.__dlpack__()
    if tensor.device.dlpack_device_type() != _HOST:
        raise BufferError(
            f"expected a tensor in memory of the processor, got one on {tensor.device};"
            " numpy can read a copy only"
        )
    # numpy's DLPack does not know bfloat16, so the bytes are shared, and the type is set here.
    size_bytes = tensor_bytes(tensor.shape, tensor.dtype)
    memory = np.from_dlpack(tensor._create_view((size_bytes,), "uint8"))
    array: NDArray[np.generic] = memory.view(np.dtype(str(tensor.dtype))).reshape(tensor.shape)
    array.flags.writeable = False
    return array


def is_for_cuda(device: tvm.runtime.Device) -> bool:
    """Whether memory is that of an NVIDIA GPU."""
    return str(device).startswith("cuda:")


def runtime_device(target: str | None) -> tvm.runtime.Device:
    """The TVM device that holds the tensors of a device; devices without target are host memory.

    Raises
    ------
    InvalidPlatformError
        When the device is not on this machine.
    """
    return tvm.cpu(0) if target is None else device_of(resolve_target(target))
