"""Arenas in real memory, and tensors that are views into them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray

from tvm_xengine.kernels.targets import device_of, resolve_target
from tvm_xengine.passes.bind_arenas import ArenaView
from tvm_xengine.scheduling.platform import Platform

POISON = 0xA5


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
    """

    def __init__(
        self,
        size_bytes: int,
        device: tvm.runtime.Device,
        *,
        alignment_bytes: int = 64,
        guard_bytes: int = 0,
    ) -> None:
        self.size_bytes = size_bytes
        self.guard_bytes = guard_bytes
        self.device = device
        # TVM aligns what it allocates to 64 bytes; only a larger alignment needs slack.
        slack_bytes = 0 if alignment_bytes <= 64 else alignment_bytes
        self._memory = tvm.runtime.empty((size_bytes + guard_bytes + slack_bytes,), "uint8", device)
        self._base = -(-_address(self._memory) // alignment_bytes) * alignment_bytes
        self._keep_alive: list[_DLManagedTensor] = []
        self._bytes = self.view(ArenaView("", 0, (size_bytes + guard_bytes,), "uint8"))

    @property
    def allocated_bytes(self) -> int:
        """What the device's allocator has handed out for this arena, the guard not counted."""
        return int(self._memory.shape[0]) - self.guard_bytes

    def view(self, view: ArenaView) -> tvm.runtime.Tensor:
        """A tensor whose data begins at ``view.offset_bytes``, with no byte offset of its own."""
        managed = _managed_tensor(self._base + view.offset_bytes, view, self.device)
        self._keep_alive.append(managed)
        return tvm_ffi.from_dlpack(_Capsule(managed, self.device))

    def read(self) -> NDArray[np.uint8]:
        """A copy of the arena's bytes, the guard included."""
        return np.asarray(self._bytes.numpy())

    def poison(self, byte: int = POISON) -> None:
        """Overwrite everything, the guard included, with a byte that no result may depend on."""
        self._bytes.copyfrom(np.full(self.size_bytes + self.guard_bytes, byte, dtype=np.uint8))

    def guard_is_intact(self, byte: int = POISON) -> bool:
        """Whether nothing was written behind the arena since it was poisoned with `byte`."""
        return bool((self.read()[self.size_bytes :] == byte).all())

    def touched_bytes(self, byte: int = POISON) -> int:
        """End of the highest byte that was written since the arena was poisoned with `byte`."""
        written = np.flatnonzero(self.read() != byte)
        return int(written[-1]) + 1 if len(written) else 0


def allocate_arenas(
    platform: Platform, arena_bytes: Mapping[str, int], *, guard_bytes: int = 0
) -> Mapping[str, Arena]:
    """One arena of the planned size for each device."""
    return {
        device.name: Arena(
            arena_bytes[device.name],
            runtime_device(device.target),
            alignment_bytes=platform.alignment_bytes,
            guard_bytes=guard_bytes,
        )
        for device in platform.devices
    }


def runtime_device(target: str | None) -> tvm.runtime.Device:
    """Where tensors of a device lie for TVM; devices without target are host memory.

    Raises
    ------
    InvalidPlatformError
        When the device is not on this machine.
    """
    return tvm.cpu(0) if target is None else device_of(resolve_target(target))


class _DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    """The exchange structure of DLPack (https://dmlc.github.io/dlpack, C API, unversioned)."""

    _fields_ = (
        ("dl_tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _Capsule:
    """Offers a `_DLManagedTensor` through the DLPack protocol."""

    def __init__(self, managed: _DLManagedTensor, device: tvm.runtime.Device) -> None:
        self._managed = managed
        self._device = device

    def __dlpack__(self, **_options: object) -> object:
        return _python_api().PyCapsule_New(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return int(self._device.dlpack_device_type()), int(self._device.index)


def _managed_tensor(address: int, view: ArenaView, device: tvm.runtime.Device) -> _DLManagedTensor:
    dtype = tvm.DataType(view.dtype)
    ndim = len(view.shape)
    strides = [1] * ndim
    for axis in reversed(range(ndim - 1)):
        strides[axis] = strides[axis + 1] * view.shape[axis + 1]
    return _DLManagedTensor(
        _DLTensor(
            data=address,
            device=_DLDevice(int(device.dlpack_device_type()), int(device.index)),
            ndim=ndim,
            dtype=_DLDataType(int(dtype.type_code), int(dtype.bits), int(dtype.lanes)),
            shape=(ctypes.c_int64 * max(ndim, 1))(*view.shape),
            strides=(ctypes.c_int64 * max(ndim, 1))(*strides),
            byte_offset=0,
        ),
        None,
        None,
    )


def _address(tensor: tvm.runtime.Tensor) -> int:
    """Address of a tensor's first element."""
    api = _python_api()
    capsule = tensor.__dlpack__()
    managed = _DLManagedTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    return int(managed.dl_tensor.data) + int(managed.dl_tensor.byte_offset)


@cache
def _python_api() -> ctypes.PyDLL:
    api = ctypes.PyDLL(None)
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return api
