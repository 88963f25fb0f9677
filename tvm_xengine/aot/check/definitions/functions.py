"""Relax functions evaluated as their kernels are defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from numpy.typing import DTypeLike
from tvm import relax

from tvm_xengine.aot.check.definitions.expressions import Array, Errors, Expressions
from tvm_xengine.aot.check.definitions.kernels import Definition, definition_of
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block
from tvm_xengine.relax_ir.kernel_calls import is_view, kernel_call
from tvm_xengine.relax_ir.signature import StepSignature, lifted_constants
from tvm_xengine.relax_ir.types import static_shape


@dataclass(frozen=True)
class DefinedFunction:
    """A function of a module; `wide` stands for float32 in what it computes."""

    func: relax.Function
    kernels: Mapping[str, Definition]
    expressions: Expressions

    def __call__(self, given: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The results by their names, and the new state by the names of the parameters it replaces."""
        known: dict[relax.Var, list[Array]] = {}
        values = {**lifted_constants(self.func), **given}
        for param in self.func.params:
            dtype = self.expressions.numpy_type(str(param.ty.dtype))
            known[param] = [np.asarray(values[param.name]).astype(dtype)]

        def arrays(expr: relax.Expr) -> list[Array]:
            """Of a tuple one for each field, else one."""
            if isinstance(expr, relax.TupleGetItem):
                return [arrays(expr.tuple_value)[int(expr.index)]]
            if isinstance(expr, relax.Tuple):
                return [array for field in expr.fields for array in arrays(field)]
            if is_view(expr):
                return [np.reshape(arrays(expr.args[0])[0], static_shape(expr.ty))]
            return known[expr]

        for position, binding in enumerate(single_block(self.func).bindings):
            call = kernel_call(position, binding)
            if call is None:
                known[binding.var] = arrays(binding.value)
            else:
                inputs = [arrays(arg)[0] for arg in call.args]
                known[binding.var] = self.kernels[call.kernel.name_hint](inputs)
        signature = StepSignature.read(self.func)
        fields = [arrays(field)[0] for field in returned_fields(self.func)]
        count = signature.num_results
        replaced = [self.func.params[position].name for position in signature.updates]
        results = dict(zip(signature.results or (), fields[:count], strict=True))
        return results, dict(zip(replaced, fields[count:], strict=True))


def in_kernels(mod: tvm.IRModule, func_name: str) -> tvm.IRModule:
    """The module with the function `func_name` as calls of kernels in blocks."""
    return tvm.transform.Sequential([LowerToKernels(func_name)])(mod)


def defined_function(
    lowered: tvm.IRModule,
    func_name: str,
    wide: DTypeLike,
    errors: Errors | None = None,
) -> DefinedFunction:
    """The function `func_name`, each kernel as it is defined; sums off by `errors`, if given.

    Parameters
    ----------
    lowered
        As `in_kernels` makes it, which takes most of the time.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel, or one with a statement or an expression that is not known.
    """
    func, expressions = lowered[func_name], Expressions(wide, errors)
    calls = [kernel_call(at, b) for at, b in enumerate(single_block(func).bindings)]
    kernels = {
        call.kernel.name_hint: definition_of(lowered[call.kernel], len(call.args), expressions)
        for call in calls
        if call is not None
    }
    return DefinedFunction(func, kernels, expressions)
