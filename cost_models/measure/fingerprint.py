"""Identify what a measured time depends on besides the kernel."""

from __future__ import annotations

import platform
from pathlib import Path

import tvm
from tvm.target import Target
from tvm.target.codegen import llvm_version_major

from tvm_xengine.kernels.identity import digest
from tvm_xengine.kernels.targets import device_of, is_gpu


def device_fingerprint(target: Target) -> str:
    """Return a key for a target on this machine with this code generator.

    Raises
    ------
    InvalidPlatformError
        When the target is a GPU that this machine does not have.
    """
    gpu = {"gpu": str(device_of(target).device_name)} if is_gpu(target) else {}
    return digest({"target": str(target)} | _machine() | gpu)


def link_fingerprint(src: str, dst: str) -> str:
    """Return a key for copies between two kinds of device memory on this machine."""
    return digest({"src": src, "dst": dst} | _machine())


def _machine() -> dict[str, str]:
    return {
        "cpu": _cpu_model(),
        "system": platform.system(),
        "tvm": tvm.__version__,
        "llvm": str(llvm_version_major()),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.processor())


def remote_fingerprint(target: Target, address: str) -> str:
    """The same for boards behind an RPC address, whose processor is not known here."""
    facts = _machine() | {"cpu": f"behind {address}"}
    return digest({"target": str(target)} | facts)
