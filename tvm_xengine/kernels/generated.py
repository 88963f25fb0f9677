"""Generated code as a source of kernels."""

from __future__ import annotations

from tvm import tirx
from tvm.target import Target

from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.tuned import TunedSchedules, prepare_tuned


class GeneratedSource:
    """Every kernel, for every target that TVM generates code for."""

    name = "tir"

    def why_not(self, _target: Target) -> None:
        """None: generated code is always available."""

    def prepare(
        self, func: tirx.PrimFunc, target: Target, name: str, tuned: TunedSchedules | None
    ) -> DeviceKernel:
        """With the tuned schedule where one is known that is faster than our rules'."""
        return prepare_tuned(func, target, name, tuned)
