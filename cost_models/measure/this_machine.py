"""The description and key of this machine; what the system does not say is None."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from functools import cache
from pathlib import Path

import tvm
from tvm.target import Target
from tvm.target import codegen as llvm

from tvm_xengine.cost_models.features.hardware import ASSUMED_CACHES_BYTES
from tvm_xengine.cost_models.measure.machine import CacheSizes, Machine
from tvm_xengine.kernels.device_kinds import device_of
from tvm_xengine.kernels.digest import digest
from tvm_xengine.kernels.targets import core_count, cpu_features, is_gpu, resolve_target
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.settings import usable_cores

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MOST_KHZ = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")

_VECTORS = ("sse", "avx", "fma", "f16c", "neon", "sve", "amx")
"""Prefixes of LLVM's names of vector extensions."""


def machine_of(target: Target) -> Machine:
    """This machine, with the GPU where kernels of `target` run on one.

    Raises
    ------
    InvalidPlatformError
        When the target is a GPU that this machine does not have.
    """
    if not is_gpu(target):
        return this_machine()
    return replace(this_machine(), gpu=str(device_of(target).device_name))


@cache
def this_machine() -> Machine:
    """The machine that this process runs on."""
    native = resolve_target("llvm -mcpu=native")
    return Machine(
        processor=processor_name(),
        llvm_cpu=str(native.attrs["mcpu"]),
        architecture=platform.machine() or None,
        vector_extensions=tuple(sorted(n for n in cpu_features(native) if n.startswith(_VECTORS))),
        caches_bytes=data_caches_bytes(),
        frequency_mhz=_frequency_mhz(),
        cores=usable_cores(),
        threads=thread_pool_size(),
        system=platform.system() or None,
        tvm=str(tvm.__version__),
        llvm=str(llvm.llvm_version_major()),
    )


def remote_machine(target: Target, address: str, host: str | None = None) -> Machine:
    """A board behind an RPC address, of which its host name is known here at most, and the target."""
    here = this_machine()
    triple = str(target.attrs.get("mtriple", ""))
    return Machine(
        processor=f"{host or ''} behind {address}".strip(),
        llvm_cpu="",
        architecture=triple.partition("-")[0] or None,
        vector_extensions=(),
        caches_bytes=(None, None, None),
        frequency_mhz=None,
        cores=None,
        threads=None,
        system=None,
        tvm=here.tvm,
        llvm=here.llvm,
    )


def device_fingerprint(target: Target, machine: Machine | None = None) -> str:
    """A key for a target on a machine, by default this one.

    What compiles the code is part of `DeviceKernel.key`, not of this.

    Raises
    ------
    InvalidPlatformError
        When the target is a GPU that this machine does not have.
    """
    machine = machine or machine_of(target)
    threads = None if machine.threads is None else min(machine.threads, core_count(target))
    facts = (
        *(machine.processor, machine.architecture, machine.vector_extensions),
        *(machine.caches_bytes, machine.system, machine.gpu, threads),
    )
    return digest({"target": str(target), "machine": json.dumps(facts)})


def link_fingerprint(src: str, dst: str) -> str:
    """A key for copies between two kinds of device memory on this machine."""
    machine = this_machine()
    facts = (machine.processor, machine.caches_bytes, machine.system, machine.tvm)
    return digest({"src": src, "dst": dst, "machine": json.dumps(facts)})


def processor_name(cpuinfo: Path = _CPUINFO) -> str | None:
    """What the system calls the processor."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or None
    name = next((line for line in lines if line.startswith("model name")), "")
    return name.partition(":")[2].strip() or platform.processor() or None


def data_caches_bytes(folder: Path = _CACHES) -> CacheSizes:
    """Sizes of the three levels of data cache that one core sees."""
    sizes: dict[int, int | None] = {1: None, 2: None, 3: None}
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted(folder.glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
            size_bytes = int(size.rstrip("KMG")) * units.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in sizes:
            sizes[level] = size_bytes
    return sizes[1], sizes[2], sizes[3]


def last_cache_bytes() -> int:
    """Size of the last level of data cache that one core sees; an assumed one where none is known."""
    return next(filter(None, reversed(data_caches_bytes())), ASSUMED_CACHES_BYTES[-1])


def _frequency_mhz() -> float | None:
    try:
        return int(_MOST_KHZ.read_text()) / 1000
    except (OSError, ValueError):
        return None
