"""TVM's runtime for CUDA, where NVIDIA's lies in a Python package."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import tvm

_LIBRARY = "libtvm_runtime_cuda.so"


@cache
def why_no_cuda() -> str | None:
    """What keeps TVM from using an NVIDIA GPU here; None where it can.

    TVM loads its runtime for CUDA when it is imported, if the system's linker finds CUDA's. What
    ``pip install nvidia-cuda-runtime`` brings is no place where that looks, so it is loaded here first.
    """
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        try:
            _load()
        except (ImportError, OSError, RuntimeError) as error:
            return f"TVM's runtime for CUDA cannot be loaded ({error})"
    if not tvm.device("cuda", 0).exist:
        return "CUDA finds no GPU"
    return None


def _load() -> None:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    ctypes.CDLL(load_nvidia_dynamic_lib("cudart").abs_path, mode=ctypes.RTLD_GLOBAL)
    for folder in tvm.libinfo.package_lib_paths():
        if (library := Path(folder) / _LIBRARY).exists():
            ctypes.CDLL(str(library))
            return
    raise OSError(f"this build of TVM has no {_LIBRARY}")
