"""Machine code of CUDA C++, with arithmetic as PyTorch's.

TVM's own call of the compiler asks for fast math: logarithms and sines with 11 bits, divisions
that are rounded twice, denormal numbers as zero.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import tvm_ffi
from tvm.support import nvcc
from tvm.target import Target

from tvm_xengine.errors import CompilationError
from tvm_xengine.processes.tools import run_tool

_CALLBACK = "tvm_callback_cuda_compile"
_MODE = "TVM_CUDA_COMPILE_MODE"
"""TVM's variable for the compiler: ``nvrtc`` or ``nvcc``."""
_INSTALL = "pip install 'tvm-xengine[cuda]'"

_FOR_NVRTC = "#define INFINITY __int_as_float(0x7f800000)\n"
"""What nvcc takes from the headers of the host's C++ compiler."""

_HEADERS_FOR_NVRTC = re.compile(r"#ifdef __CUDACC_RTC__\n.*?\n#else\n.*?\n#endif\n", re.DOTALL)
"""What TVM writes in front of every source; NVRTC takes a second to read the headers named there."""
_INTEGERS = "".join(
    f"typedef {sign}{name} {prefix}int{bits}_t;\n"
    for prefix, sign in (("", "signed "), ("u", "unsigned "))
    for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
)

_SMALL = re.compile(r"0x[0-9a-f.]+p-\d+f\b")
"""A number of float32 below 1, as TVM writes it: with the digits that it has in double precision."""
_LEAST_NORMAL = 2.0**-126
"""Of float32; smaller numbers have fewer digits."""


@contextmanager
def exact_cuda_compiler() -> Iterator[None]:
    """TVM compiles CUDA C++ by `compile_cuda` meanwhile.

    Raises
    ------
    CompilationError
        When that does.
    """
    errors: list[CompilationError] = []

    def compiled(source: str) -> bytes:
        try:
            return compile_cuda(source)
        except CompilationError as error:  # becomes a RuntimeError on its way through TVM
            errors.append(error)
            raise

    before = tvm_ffi.get_global_func(_CALLBACK, allow_missing=True)
    tvm_ffi.register_global_func(_CALLBACK, compiled, override=True)
    try:
        yield
    except RuntimeError as error:
        raise errors[0] if errors else error from None
    finally:
        if before is not None:
            tvm_ffi.register_global_func(_CALLBACK, before, override=True)


def compile_cuda(source: str) -> bytes:
    """Machine code for the current target.

    Raises
    ------
    CompilationError
        When there is no compiler here, or it refuses the source.
    """
    arch = str(Target.current().attrs["arch"])
    compiler, _ = cuda_compiler()
    source = _SMALL.sub(_by_its_bits, source)
    if compiler == "nvrtc":
        return _by_nvrtc(source, arch)
    if compiler == "nvcc":
        with _setting("TVM_CUDA_NVCC_NO_FAST_MATH", "1"):
            return bytes(nvcc.compile_cuda(source, target_format="fatbin", compiler="nvcc"))
    raise CompilationError(
        "expected a compiler for CUDA, found neither cuda-bindings with NVRTC and CUDA's headers nor"
        f" nvcc; {_INSTALL}, or install the CUDA toolkit"
    )


@cache
def cuda_compiler() -> tuple[str, str]:
    """The compiler that is used here and its version; empty where there is none."""
    wanted = os.environ.get(_MODE, "").lower()
    if wanted in ("", "nvrtc") and (version := _nvrtc_version()):
        return "nvrtc", version
    if wanted in ("", "nvcc") and (path := shutil.which("nvcc")):
        said = run_tool([path, "--version"])
        return "nvcc", said.stdout.strip().rpartition(" ")[2]
    return "", ""


def _nvrtc_version() -> str:
    try:
        from cuda.bindings import nvrtc

        _header_folders()
        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError):
        return ""
    return f"{major}.{minor}" if error == nvrtc.nvrtcResult.NVRTC_SUCCESS else ""


@cache
def _header_folders() -> tuple[str, ...]:
    from cuda.pathfinder import find_nvidia_header_directory

    found = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    if None in found:
        raise OSError("CUDA's headers are not here")
    return tuple(str(folder) for folder in found)


def _by_its_bits(number: re.Match[str]) -> str:
    """A denormal number as its bits; compilers refuse one with more digits than it has in float32."""
    value = float.fromhex(number[0].removesuffix("f"))
    if value >= _LEAST_NORMAL:
        return number[0]
    return f"__int_as_float({struct.unpack('<i', struct.pack('<f', value))[0]:#x})"


def _by_nvrtc(source: str, arch: str) -> bytes:
    from cuda.bindings import nvrtc

    def checked(result: tuple[Any, ...]) -> Any:
        error, *values = result
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompilationError(f"NVRTC: {error.name}")
        return values[0] if values else None

    shorter = _HEADERS_FOR_NVRTC.sub(_INTEGERS, source, count=1)
    if "std::" not in shorter and "#include" not in shorter:
        source = shorter
    lines = [line for line in source.splitlines() if line.strip() != "#include <cuda.h>"]
    text = _FOR_NVRTC + "\n".join(lines)
    program = checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    options = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "-default-device",
        *(f"-I{folder}" for folder in _header_folders()),
    ]
    encoded = [option.encode() for option in options]
    if nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]:
        log = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise CompilationError(f"NVRTC refuses a kernel: {log.decode(errors='replace').strip()}")
    code = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, code))
    checked(nvrtc.nvrtcDestroyProgram(program))
    return bytes(code)


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
