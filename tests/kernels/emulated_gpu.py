"""Run kernels for a GPU on a processor, launch by launch, from the CUDA source that we generate."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import ir, tirx

from tests.gpu.fake_nvcc import compile_cuda
from tests.kernels.kernels import poison
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.compile import device_source

_AXES = [f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz"]
_MOST_POINTERS = 16


class EmulatedGpu:
    """Kernels compiled by the C++ compiler of this machine with fibers for threads."""

    def __init__(self, kernels: Sequence[DeviceKernel], folder: Path) -> None:
        library = folder / "kernels.so"
        compile_cuda(device_source(kernels, kernels[0].target), library)
        self._library = ctypes.CDLL(str(library))

    def run(self, kernel: DeviceKernel, *inputs: np.ndarray) -> list[np.ndarray]:
        """Outputs of a kernel; what it writes is poisoned with NaN first.

        Raises
        ------
        AssertionError
            If it wrote beside its tensors.
        """
        memory = _Memory()
        given = [memory.holding(array) for array in inputs]
        made = [memory.holding(poison(spec.shape, spec.dtype)) for spec in kernel.outputs]
        for pair in kernel.inplace:
            made[pair.output] = given[pair.input]
        scratch = []
        if kernel.workspace_bytes:
            scratch = [memory.holding(np.full(kernel.workspace_bytes, 0xFF, "uint8"))]
        arrays = [*given, *made, *scratch]
        params = list(kernel.func.params)
        assert len(params) == len(arrays)
        addresses = {p: a.ctypes.data for p, a in zip(params, arrays, strict=True)}
        for name, pointers, shape in launches(kernel, addresses):
            pointers += [0] * (_MOST_POINTERS - len(pointers))
            arguments = (ctypes.c_void_p * _MOST_POINTERS)(*pointers)
            function = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
            self._library.run_launch(function, arguments, (ctypes.c_int * 6)(*shape))
        assert memory.is_untouched_beside(), f"{kernel.name} wrote beside its tensors"
        return made


class _Memory:
    """Arrays with bytes in front of them and behind them that nothing may write."""

    _MARGIN_BYTES = 4096
    _PATTERN = 0x5A

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []

    def holding(self, array: np.ndarray) -> np.ndarray:
        """A copy of an array."""
        block = np.full(array.nbytes + 2 * self._MARGIN_BYTES, self._PATTERN, "uint8")
        self._blocks.append(block)
        place = block[self._MARGIN_BYTES : -self._MARGIN_BYTES]
        place[...] = np.ascontiguousarray(array).reshape(-1).view("uint8")
        return place.view(array.dtype).reshape(array.shape)

    def is_untouched_beside(self) -> bool:
        beside = [
            b[at] for b in self._blocks for at in np.s_[: self._MARGIN_BYTES, -self._MARGIN_BYTES :]
        ]
        return all((part == self._PATTERN).all() for part in beside)


def launches(
    kernel: DeviceKernel, addresses: Mapping[ir.Var, int]
) -> list[tuple[str, list[int], list[int]]]:
    """Name, pointers and shape of each launch, in the order of the program."""
    split = tirx.transform.SplitHostDevice()(tvm.IRModule({kernel.symbol: kernel.func}))
    host = split[kernel.symbol]
    known = {new: addresses[old] for new, old in zip(host.params, kernel.func.params, strict=True)}
    found = []
    for stmt in _flat(host.body):
        if isinstance(stmt, tirx.DeclBuffer):
            known[stmt.buffer] = _address(stmt.data, known)
            continue
        axes = [str(axis) for axis in stmt.value.attrs.launch_params]
        name, *arguments = stmt.value.args
        pointers = [_address(value, known) for value in arguments[: len(arguments) - len(axes)]]
        sizes = dict(zip(axes, map(int, arguments[len(pointers) :]), strict=True))
        found.append((str(name.value), pointers, [sizes.get(axis, 1) for axis in _AXES]))
    return found


def _flat(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    if isinstance(stmt, tirx.SeqStmt):
        return [inner for child in stmt.seq for inner in _flat(child)]
    return [stmt]


def _address(pointer: ir.Call, known: Mapping[ir.Var, int]) -> int:
    match str(pointer.op.name):
        case "tirx.buffer_data":
            return known[pointer.args[0]]
        case "tirx.reinterpret":
            return _address(pointer.args[0], known)
        case "tirx.handle_add_byte_offset":
            return _address(pointer.args[0], known) + int(pointer.args[1])
    raise ValueError(f"expected the address of a buffer, got {pointer}")
