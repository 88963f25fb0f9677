"""Emit a step program as a function for TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.program.step_program import (
    ArenaView,
    KernelRun,
    Operand,
    Outside,
    StepProgram,
)

COPY_FUNCTION = "runtime.TVMTensorCopyFromTo"


@dataclass(frozen=True)
class VmFunction:
    """A straight-line Relax function, and its arguments.

    Attributes
    ----------
    views
        The arena view behind each leading parameter, in order.
    contexts
        Symbols of the kernels whose contexts follow them.
    """

    function: relax.Function
    views: tuple[ArenaView, ...]
    contexts: tuple[str, ...]


def emit_vm_function(
    program: StepProgram,
    name: str,
    constants: Mapping[str, NDArray[np.generic]] | None = None,
) -> VmFunction:
    """The function `name` that makes the calls of `program` on views into the arenas.

    .. code-block:: python

        def train_step(cpu_0: R.Tensor((4,), "float32"), cpu_64: ..., gpu_0: ...):
            R.call_packed("f__cpu", cpu_0, cpu_64)
            R.call_packed("runtime.TVMTensorCopyFromTo", cpu_64, gpu_0)
            ...

    It allocates nothing; no pass that re-plans memory may run on it.

    Parameters
    ----------
    constants
        Values of the constants that lie outside the arenas, by their names in `program`.

    Raises
    ------
    UnsupportedModuleError
        If the program reads something else from outside the arenas.
    """
    emitter = _Emitter(constants or {})
    for view in program.interface.inputs.values():
        emitter.operand(view)
    for call in program.calls:
        if isinstance(call, KernelRun):
            arguments = [emitter.operand(operand) for operand in call.operands]
            if call.has_context:
                arguments.append(emitter.context(call.symbol))
            emitter.call(call.symbol, arguments)
        else:
            emitter.call(COPY_FUNCTION, [emitter.operand(call.src), emitter.operand(call.dst)])
    function = emitter.function().with_attr("global_symbol", name)
    return VmFunction(function, tuple(emitter.views), tuple(emitter.contexts))


class _Emitter:
    def __init__(self, constants: Mapping[str, NDArray[np.generic]]) -> None:
        self.constants = constants
        self.views: dict[ArenaView, relax.Var] = {}
        self.contexts: dict[str, relax.Var] = {}
        self.calls: list[relax.Call] = []

    def operand(self, operand: Operand) -> relax.Expr:
        if isinstance(operand, ArenaView):
            if operand not in self.views:
                name = f"{operand.device}_{operand.offset_bytes}_{len(self.views)}"
                self.views[operand] = relax.Var(
                    name, relax.TensorType(operand.shape, operand.dtype)
                )
            return self.views[operand]
        if operand.kind is not Outside.CONSTANT:
            raise UnsupportedModuleError(
                f"{operand.name} is read from the {operand.kind.value}, but a function of the virtual"
                " machine reads arenas and constants only"
            )
        return relax.const(self.constants[operand.name].reshape(operand.shape), operand.dtype)

    def context(self, symbol: str) -> relax.Var:
        if symbol not in self.contexts:
            name = f"context_{len(self.contexts)}"
            self.contexts[symbol] = relax.Var(name, relax.TensorType(None, "int64", ndim=1))
        return self.contexts[symbol]

    def call(self, symbol: str, arguments: list[relax.Expr]) -> None:
        nothing = relax.TupleType([])
        self.calls.append(relax.Call(relax.ExternFunc(symbol), arguments, None, [nothing]))

    def function(self) -> relax.Function:
        builder = relax.BlockBuilder()
        params = [*self.views.values(), *self.contexts.values()]
        with builder.function("step", params, pure=False):
            for call in self.calls:
                builder.emit(call)
            builder.emit_func_output(relax.Tuple([]))
        return builder.get()["step"]
