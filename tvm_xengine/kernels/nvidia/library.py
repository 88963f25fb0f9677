"""cuDNN and cuBLAS as they are loaded, and what both need.

Names and numbers are those of their C interfaces (``cudnn_cnn.h`` of cuDNN 9, ``cublasLt.h`` of CUDA 13).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from typing import Any

import numpy as np
import tvm

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.cuda.runtime import why_no_cuda

NAME = "nvidia"
"""Name of the kernel source."""

CUDNN, CUBLAS = "cuDNN", "cuBLAS"

_SONAMES = {CUDNN: "libcudnn.so.9", CUBLAS: "libcublasLt.so.13"}
_DISTRIBUTIONS = {CUDNN: "nvidia-cudnn-cu13", CUBLAS: "nvidia-cublas"}
"""The packages that carry them, which PyTorch for CUDA brings, too."""
_CREATE = {CUDNN: "cudnnCreate", CUBLAS: "cublasLtCreate"}
_VERSION = {CUDNN: "cudnnGetVersion", CUBLAS: "cublasLtGetVersion"}


class NvidiaLibraries:
    """Both libraries with a handle each, for the default stream of the first GPU.

    Compiled kernels call their functions by names, so these become visible to the process.

    Raises
    ------
    LibraryError
        When one of them is missing, or finds no GPU.
    """

    def __init__(self) -> None:
        if (reason := why_no_cuda()) is not None:
            raise LibraryError(reason)
        gpu = tvm.device("cuda", 0)
        gpu.sync()  # which makes the context that the handles belong to
        self._libraries = {name: _load(name) for name in _SONAMES}
        self._handles = {name: self.create(name, _CREATE[name]) for name in _SONAMES}
        self._numbers = np.array([0.0, 1.0], "float32")
        versions = (self._version(name) for name in _SONAMES)
        self.version = f"{gpu.device_name}, {', '.join(versions)}"
        """What the choice of an algorithm depends on."""

    def handle(self, library: str) -> int:
        """The handle that a library's functions take first."""
        return self._handles[library]

    def address_of(self, number: int) -> int:
        """Where the float32 number 0 or 1 lies in memory of the host."""
        return int(self._numbers[number:].ctypes.data)

    def create(self, library: str, function: str, *arguments: object) -> int:
        """The object that a function makes, which it writes to its first argument."""
        made = ctypes.c_void_p()
        self.call(library, function, ctypes.byref(made), *arguments)
        return int(made.value or 0)

    def call(self, library: str, function: str, *arguments: object) -> None:
        """Call a function.

        Raises
        ------
        LibraryError
            When it refuses.
        """
        if status := self.status(library, function, *arguments):
            raise LibraryError(f"{library}: {function} fails with status {status}")

    def status(self, library: str, function: str, *arguments: object) -> int:
        """What a function returns, 0 where it has done what was asked."""
        return int(getattr(self._libraries[library], function)(*arguments))

    def object(self, library: str, kind: str, *arguments: object) -> Handle:
        """An object that lives as long as the result, made by ``<kind>Create`` or ``Create<kind>``."""
        create, destroy = (
            (f"cudnn{verb}{kind}" if library == CUDNN else f"cublasLt{kind}{verb}")
            for verb in ("Create", "Destroy")
        )
        made = Handle(self.create(library, create, *arguments))
        weakref.finalize(made, self.status, library, destroy, pointer(made.address))
        return made

    def _version(self, name: str) -> str:
        function = getattr(self._libraries[name], _VERSION[name])
        function.restype = ctypes.c_size_t
        return f"{name} {function()}"


class Handle:
    """An object of a library, which ends with this one."""

    def __init__(self, address: int) -> None:
        self.address = address


@cache
def load_nvidia() -> NvidiaLibraries:
    """The libraries, loaded once.

    Raises
    ------
    LibraryError
        When they cannot be used here.
    """
    return NvidiaLibraries()


def pointer(address: int | None) -> ctypes.c_void_p:
    """An address as a function takes it."""
    return ctypes.c_void_p(address)


def ints(values: Sequence[int]) -> Any:
    """An array of C's ``int``."""
    return (ctypes.c_int * len(values))(*values)


def _load(name: str) -> ctypes.CDLL:
    """One that the process has, or that of a Python package, or of the system."""
    soname = _SONAMES[name]
    places = ((soname, os.RTLD_NOLOAD), *((path, 0) for path in _in_packages(name)), (soname, 0))
    for place, mode in places:
        try:
            return ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL | mode)
        except OSError:
            continue
    raise LibraryError(
        f"{name} ({soname}) cannot be loaded; pip install 'tvm-xengine[cudnn]' brings it, as PyTorch"
        " for CUDA does"
    )


def _in_packages(name: str) -> list[str]:
    try:
        installed = files(_DISTRIBUTIONS[name]) or []
    except PackageNotFoundError:
        return []
    return [str(file.locate()) for file in installed if file.name == _SONAMES[name]]
