"""Turn constant tensors of a function into parameters."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import single_block, with_bindings
from tvm_xengine.relax_ir.signature import CONSTANTS_ATTR


@tvm.transform.module_pass(opt_level=0, name="LiftConstants")
class LiftConstants:
    """Make each tensor constant of a function a parameter behind the existing ones.

    .. code-block:: python

        def f(x):
            y = R.call_tir(add, (x, [1, 2, 3]), ...)

    becomes

    .. code-block:: python

        def f(x, constant):
            R.func_attr({"tvm_xengine.constants": [[1, 2, 3]]})
            y = R.call_tir(add, (x, constant), ...)

    One constant that several calls read becomes one parameter. The arguments of ``R.call_tir`` and of
    views are searched, and what the function returns.
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        mod[self.func_name] = _lift(mod[self.func_name])
        return relax.transform.Normalize()(mod)


def _lift(func: relax.Function) -> relax.Function:
    lifted = _Lifted()
    bindings = [
        relax.VarBinding(binding.var, lifted.without_constants(binding.value))
        if isinstance(binding, relax.VarBinding)
        else binding
        for binding in single_block(func).bindings
    ]
    if not lifted.params:
        return func
    params = [*func.params, *lifted.params]
    known = list(func.attrs.get(CONSTANTS_ATTR, ())) if func.attrs else []
    return with_bindings(func, bindings, params).with_attr(
        CONSTANTS_ATTR, [*known, *(constant.value for constant in lifted.constants)]
    )


class _Lifted:
    """The constants found so far, each with its parameter."""

    def __init__(self) -> None:
        self.constants: list[ir.expr.GenericConst] = []
        self.params: list[relax.Var] = []

    def without_constants(self, value: relax.Expr) -> relax.Expr:
        if not isinstance(value, ir.Call):
            return self._replace(value)
        args = [self._replace(arg) for arg in value.args]
        return ir.Call(value.op, args, value.attrs, value.ty_args, value.span)

    def _replace(self, arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._replace(field) for field in arg.fields])
        if not isinstance(arg, ir.expr.GenericConst):
            return arg
        for constant, param in zip(self.constants, self.params, strict=True):
            if constant.same_as(arg):
                return param
        self.constants.append(arg)
        self.params.append(relax.Var(f"constant_{len(self.params)}", arg.ty))
        return self.params[-1]
