"""cuDNN and cuBLAS as a source of kernels."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.target import Target

from tvm_xengine.errors import LibraryError, UnsupportedModuleError
from tvm_xengine.kernels.cuda.runtime import why_no_cuda
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.library.assembly import assemble
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.claim import claims
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.nvidia.library import NAME, load_nvidia
from tvm_xengine.kernels.nvidia.operations import ABILITIES, describe
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.targets import resolve_target

_logger = logging.getLogger(__name__)


class NvidiaSource:
    """float32 kernels for the NVIDIA GPU of this machine, without TF32."""

    name = NAME

    def why_not(self, target: Target) -> str | None:
        """The reason is another device, or a library that is not installed."""
        if target.kind.name != "cuda":
            return f"it computes on NVIDIA GPUs, not for {target}"
        if (reason := why_no_cuda()) is not None:
            return reason
        here = resolve_target("cuda").attrs["arch"]
        if target.attrs["arch"] != here:
            return f"it computes on the GPU of this machine ({here}), not for {target}"
        try:
            load_nvidia()
        except LibraryError as error:
            return str(error)
        return None

    def prepare(
        self, func: tirx.PrimFunc, target: Target, name: str, _tuned: TunedSchedules | None
    ) -> DeviceKernel | None:
        """The main operation is the library's, what was fused behind it is generated."""
        libraries = load_nvidia()
        whole = kernel_parts(func)
        if whole is None or num_outputs(func) != 1:
            return None
        for claim in claims(whole, ABILITIES, threads=1):
            try:
                if (call := describe(claim.call, libraries)) is not None:
                    facts = {"libraries": libraries.version, "algorithm": call.algorithm}
                    return assemble(func, target, name, claim, call, **facts)
            except (LibraryError, UnsupportedModuleError) as error:
                _logger.info("%s is left to the next source: %s", name, error)
        return None

    def load(self) -> None:
        """Compiled kernels find the functions by their names in this process."""
        load_nvidia()

    def context(self, call: LibraryCall) -> NvidiaContext:
        """Handles and descriptors."""
        return NvidiaContext(call)


class NvidiaContext:
    """The handles and descriptors of a call.

    Raises
    ------
    LibraryError
        When the libraries are missing, or do not take the call.

    Attributes
    ----------
    words
        Their addresses.
    """

    def __init__(self, call: LibraryCall) -> None:
        found = describe(call, load_nvidia())
        if found is None:
            raise LibraryError(
                f"cuDNN and cuBLAS have no kernel for {call} here, but had one when it was planned"
            )
        self._call = found
        self.words: NDArray[np.int64] = np.array(found.addresses, dtype=np.int64)
