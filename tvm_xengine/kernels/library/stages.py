"""How a library computes a call: which of its functions run, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import describe


@dataclass(frozen=True)
class Stage:
    """One function of a library.

    Attributes
    ----------
    implementation
        The library's name of its code, such as ``brg:avx512_core``.
    is_copy
        Whether it only lays a tensor out otherwise.
    tensors_bytes
        Of its operands and results as they lie there, padding included.
    """

    implementation: str
    is_copy: bool
    tensors_bytes: int


def stages_of(call: LibraryCall) -> tuple[Stage, ...]:
    """What the library on this machine would run for a call; nothing runs.

    Raises
    ------
    LibraryError
        When the library is missing here, or no longer takes the call.
    """
    program = describe(call, load_onednn())
    if program is None:
        raise LibraryError(f"{call.source} has no kernel for {call} on this machine")
    return tuple(
        Stage(
            implementation=execution.desc.implementation,
            is_copy=execution.is_copy,
            tensors_bytes=sum(tensor.desc.size_bytes for tensor in execution.arguments.values()),
        )
        for execution in program.executions
    )
