"""oneDNN as a source of kernels."""

from __future__ import annotations

import platform

from tvm import tirx
from tvm.target import Target

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.context import OnednnContext
from tvm_xengine.kernels.onednn.library import NAME, load_onednn
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.targets import resolve_target


class OnednnSource:
    """float32 kernels for the x86-64 processor of this machine."""

    name = NAME

    def why_not(self, target: Target) -> str | None:
        """The reason is another processor, or a library that is not installed."""
        if target.kind.name != "llvm" or platform.machine() not in ("x86_64", "AMD64"):
            return f"it computes on x86-64 processors, not for {target}"
        if str(target) != str(_this_processor(target)):
            return f"it computes for the processor of this machine (-mcpu=native), not for {target}"
        try:
            load_onednn()
        except LibraryError as error:
            return str(error)
        return None

    def prepare(
        self, func: tirx.PrimFunc, target: Target, name: str, _tuned: TunedSchedules | None
    ) -> DeviceKernel | None:
        """The main operation is oneDNN's, what was fused behind it is generated."""
        return prepare_onednn_kernel(func, target, name)

    def load(self) -> None:
        """Compiled kernels find oneDNN's functions by their names in this process."""
        load_onednn()

    def context(self, call: LibraryCall) -> OnednnContext:
        """Primitives, and the memory objects of their tensors."""
        return OnednnContext(call)


def _this_processor(target: Target) -> Target:
    """The target of the same description on the processor of this machine."""
    description: dict[str, str | int] = {"kind": "llvm", "mcpu": "native"}
    if "num-cores" in target.attrs:
        description["num-cores"] = int(target.attrs["num-cores"])
    return resolve_target(description)
