"""The live objects behind a compiled kernel that calls oneDNN."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import ExecArgs, exec_args
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import describe
from tvm_xengine.kernels.onednn.program import Program


class OnednnContext:
    """Primitives ready to run, with their addresses in the form that a compiled kernel reads.

    Parameters
    ----------
    call
        What to compute.

    Raises
    ------
    LibraryError
        When oneDNN is missing, or refuses the call.

    Attributes
    ----------
    words
        Int64: the stream, the memory object of every tensor argument, and for each primitive
        itself and its array of arguments.
    """

    def __init__(self, call: LibraryCall) -> None:
        library = load_onednn()
        program = describe(call, library)
        if program is None:
            raise LibraryError(
                f"oneDNN on this machine has no kernel for {call}, but had one when it was planned"
            )
        with library.threads(call.threads):
            primitives = [library.create_primitive(e.desc) for e in program.executions]
        memories = [library.create_memory(placed.desc) for placed in program.placed]
        self._program = program
        self._arguments = _arguments(program, memories)
        self.words: NDArray[np.int64] = np.array(
            [
                library.stream,
                *memories,
                *(
                    word
                    for primitive, arguments in zip(primitives, self._arguments, strict=True)
                    for word in (primitive, ctypes.addressof(arguments))
                ),
            ],
            dtype=np.int64,
        )
        for kind, handles in (("memory", memories), ("primitive", primitives)):
            for handle in handles:
                weakref.finalize(self, library.destroy, kind, handle)


def _arguments(program: Program, memories: Sequence[int]) -> list[ExecArgs]:
    waiting = iter(memories)
    return [
        exec_args([(number, next(waiting)) for number in execution.arguments])
        for execution in program.executions
    ]
