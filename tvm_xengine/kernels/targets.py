"""Turn a device's target description into a TVM target that names a real CPU."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from pathlib import Path

import tvm
from tvm.target import Target
from tvm.target import codegen as llvm

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.extensions.extended import extended
from tvm_xengine.kernels.cuda.runtime import why_no_cuda
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.settings import usable_cores

_SHARED_BYTES = 49_152
"""Shared memory of a block that every NVIDIA GPU grants without being asked."""

_NVIDIA = {"max_threads_per_block": 1024, "max_shared_memory_per_block": _SHARED_BYTES}
"""What a block has on every NVIDIA GPU since compute capability 2.0."""

TargetDescription = str | Mapping[str, str | int]

DEVICE_KINDS = "tvm_xengine.device_kinds"
"""Entry points by which other packages add kinds of devices (see `device_kinds`)."""

_VECTOR_BYTES = (("avx512f", 64), ("avx", 32), ("sse", 16), ("neon", 16), ("mve.fp", 16))
"""Width of the vector registers that a feature of LLVM's brings, the widest first."""


def resolve_target(description: TargetDescription) -> Target:
    """Return the target that a description means on this machine.

    Parameters
    ----------
    description
        ``"llvm -mcpu=native -num-cores=2"``, or the same as a mapping
        ``{"kind": "llvm", "mcpu": "native", "num-cores": 2}``. The CPU ``native`` becomes the
        name of this machine's CPU (less the features that are masked here) and the core count
        ``native`` the number of cores this process may use. Without ``num-cores`` kernels are
        single-threaded. ``cuda`` and ``cuda -arch=native`` mean the GPU of this machine.

    Raises
    ------
    InvalidPlatformError
        When the description cannot be read, or names a kind or CPU that this build of TVM
        generates no code for.
    """
    config = _parse(description) if isinstance(description, str) else dict(description)
    if "kind" not in config:
        raise InvalidPlatformError(
            f'target {description!r} names no kind; write e.g. "llvm -mcpu=native"'
        )
    kind = str(config["kind"])
    if config.get("mcpu") == "native":
        config |= _native_cpu()
    if "num-cores" in config:
        config["num-cores"] = _core_count(config["num-cores"])
    if kind == "cuda":
        config = {**_NVIDIA, **config, "arch": _architecture(config.get("arch", "native"))}
    has_code_generator = tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is not None
    if not has_code_generator and kind not in extended(DEVICE_KINDS, {}):
        raise InvalidPlatformError(
            f"target {description!r}: this build of TVM generates no code for kind {kind!r}"
        )
    try:
        target = Target(config)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidPlatformError(f"target {description!r}: {reason}") from error
    if kind == "llvm":
        _require_known_cpu(target, description)
    return target


def core_count(target: Target) -> int:
    """Number of cores kernels of `target` may use."""
    return int(target.attrs.get("num-cores", 1))


def is_gpu(target: Target) -> bool:
    """Whether kernels of `target` are launched on the threads of a GPU."""
    return "gpu" in target.keys


def max_threads_per_block(target: Target) -> int:
    """Most threads that a GPU runs together and that may wait for each other."""
    limit = target.attrs.get("max_threads_per_block", target.attrs.get("max_num_threads", 256))
    return int(limit)


def max_shared_bytes(target: Target) -> int:
    """Most memory that the threads of a block share."""
    return int(target.attrs.get("max_shared_memory_per_block", _SHARED_BYTES))


def thread_count(target: Target) -> int:
    """Number of threads that kernels of `target` get in this process.

    The pool of TVM's runtime may be smaller than the target says (``TVM_NUM_THREADS``).
    """
    return max(1, min(core_count(target), thread_pool_size()))


def vector_bytes(target: Target, dtype: str = "float32") -> int:
    """Width of the target's vector registers for a type, 4 when it has none that we know.

    What is written in C has vectors of float32 and int32 only.
    """
    if target.kind.name == "c" and dtype not in ("float32", "int32"):
        return 4
    features = cpu_features(target)
    return next((width for feature, width in _VECTOR_BYTES if feature in features), 4)


def cpu_features(target: Target) -> frozenset[str]:
    """LLVM's names of the features that code for `target` may use."""
    if target.kind.name == "c":  # of whose processors TVM says these two features
        told = {"mve.fp": "feature.has_mve", "dsp": "feature.has_dsp"}
        return frozenset(name for name, key in told.items() if target.attrs.get(key))
    if target.kind.name != "llvm":
        return frozenset()
    removed = {str(a)[1:] for a in target.attrs.get("mattr", ()) if str(a).startswith("-")}
    return frozenset(str(name) for name in llvm.llvm_get_cpu_features(target)) - removed


def _architecture(name: object) -> str:
    """The compute capability of a GPU, ``sm_90``; ``native`` is that of this machine's."""
    if name != "native":
        return str(name)
    if (reason := why_no_cuda()) is not None:
        raise InvalidPlatformError(
            f'target "cuda": {reason}; name the architecture of a GPU that is not here, as in'
            ' "cuda -arch=sm_90"'
        )
    return "sm_" + str(tvm.device("cuda", 0).compute_version).replace(".", "")


def _parse(text: str) -> dict[str, object]:
    words = shlex.split(text)
    config: dict[str, object] = {"kind": words[0]} if words else {}
    for word in words[1:]:
        name, separator, value = word.removeprefix("-").partition("=")
        if not word.startswith("-") or not separator or not name or not value:
            raise InvalidPlatformError(
                f"target {text!r}: cannot read {word!r}; options look like -mcpu=native"
            )
        if name == "mattr":
            config[name] = value.split(",")
        elif value.isdecimal():
            config[name] = int(value)
        else:
            config[name] = value
    return config


def _core_count(value: object) -> int:
    if value == "native":
        return usable_cores()
    if isinstance(value, int) and value >= 1:
        return value
    raise InvalidPlatformError(f"num-cores must be a number >= 1 or native, got {value!r}")


def _native_cpu() -> dict[str, object]:
    """This machine's CPU, less what LLVM expects of the model but this machine masks."""
    cpu: dict[str, object] = {"mcpu": str(llvm.llvm_get_system_cpu())}
    if missing := _masked_features(str(cpu["mcpu"])):
        cpu["mattr"] = [f"-{name}" for name in missing]
    return cpu


def _masked_features(cpu: str) -> list[str]:
    flags = _cpuinfo_flags()
    if platform.machine() not in ("x86_64", "AMD64") or not flags:
        return []
    expected = cpu_features(Target({"kind": "llvm", "mcpu": cpu}))
    vector = {name for name in expected if name.startswith("avx") or name in ("fma", "f16c")}
    return sorted(name for name in vector if name.replace("avx512vnni", "avx512_vnni") not in flags)


def _cpuinfo_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _require_known_cpu(target: Target, description: TargetDescription) -> None:
    cpu = target.attrs.get("mcpu")
    triple = {"mtriple": target.attrs["mtriple"]} if "mtriple" in target.attrs else {}
    known = llvm.llvm_get_cpu_archlist(Target({"kind": "llvm"} | triple))
    if cpu is not None and str(cpu) not in {str(name) for name in known}:
        raise InvalidPlatformError(f"target {description!r}: LLVM knows no CPU named {cpu!r}")
