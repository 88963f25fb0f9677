"""Write operators that only rename the axes of contiguous data as views."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import single_block, with_bindings

_VIEWS = frozenset({"relax.flatten", "relax.squeeze", "relax.expand_dims"})


@tvm.transform.module_pass(opt_level=0, name="ExpressViewsAsReshape")
class ExpressViewsAsReshape:
    """Write every operator that moves no bytes as ``R.reshape``.

    .. code-block:: python

        f = R.flatten(x)                   # x: (2, 3, 1)
        s = R.squeeze(x, axis=[2])
        t = R.permute_dims(x, [2, 0, 1])   # moves only an axis of length 1

    becomes

    .. code-block:: python

        f = R.reshape(x, (6,))
        s = R.reshape(x, (2, 3))
        t = R.reshape(x, (1, 2, 3))
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        func = mod[self.func_name]
        bindings = [_as_reshape(binding) for binding in single_block(func).bindings]
        mod[self.func_name] = with_bindings(func, bindings)
        return relax.transform.Normalize()(mod)


def is_view(value: relax.Expr) -> bool:
    """Whether an operator call gives its first argument's bytes another shape."""
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return False
    name = value.op.name
    return name == "relax.reshape" or name in _VIEWS or _permutes_unit_axes(value)


def _as_reshape(binding: relax.Binding) -> relax.Binding:
    if not is_view(binding.value) or binding.value.op.name == "relax.reshape":
        return binding
    view = relax.op.reshape(binding.value.args[0], binding.var.ty.shape)
    return relax.VarBinding(binding.var, view)


def _permutes_unit_axes(call: ir.Call) -> bool:
    if call.op.name != "relax.permute_dims":
        return False
    shape = [int(extent) for extent in call.args[0].ty.shape]
    axes = [int(axis) for axis in call.attrs.axes or reversed(range(len(shape)))]
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)
