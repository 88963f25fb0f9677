"""Give bindings that a pass named lv3 or gv1 the name of the kernel they call."""

from __future__ import annotations

import re

import tvm
import tvm_ffi
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.relax_ir.kernel_calls import read_origins, write_origins

_ANONYMOUS = re.compile(r"(lv|gv)(_?\d+)*")
_MOST_LETTERS = 48
"""A longer name fills more than half of a line of a terminal; fused kernels are named after all their ops."""


@tvm.transform.module_pass(opt_level=0, name="NameBindingsByKernel")
class NameBindingsByKernel:
    """Make the names of bindings telling and unique.

    .. code-block:: python

        lv1 = R.call_tir(fused_conv2d_relu, (x, w), ...)
        lv2 = R.call_tir(fused_conv2d_relu, (lv1, v), ...)

    becomes

    .. code-block:: python

        conv2d_relu = R.call_tir(fused_conv2d_relu, (x, w), ...)
        conv2d_relu_1 = R.call_tir(fused_conv2d_relu, (conv2d_relu, v), ...)

    Names that a person or a front end gave stay, with a number when they occur twice.
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        mod[self.func_name] = _rename(mod[self.func_name])
        return relax.transform.Normalize()(mod)


def _rename(func: relax.Function) -> relax.Function:
    taken = {param.name for param in func.params}
    renamed: dict[relax.Var, relax.Var] = {}

    def newest(var: relax.Var) -> relax.Var:
        return renamed.get(var, var)

    entries = [(ir.expr.Var, newest), (relax.DataflowVar, newest)]
    bindings = []
    for binding in single_block(func).bindings:
        value = tvm_ffi.structural_map(binding.value, entries)
        name = unused_name(_telling_name(binding), taken)
        taken.add(name)
        renamed[binding.var] = type(binding.var)(name, binding.var.ty)
        bindings.append(relax.VarBinding(renamed[binding.var], value))
    body = tvm_ffi.structural_map(func.body.body, entries)
    made = relax.Function(
        func.params,
        relax.SeqExpr([relax.DataflowBlock(bindings)], body),
        func.ret_ty,
        func.is_pure,
        func.attrs,
    )
    names = {old.name: new.name for old, new in renamed.items()}
    origins = {names.get(name, name): parts for name, parts in read_origins(func).items()}
    return write_origins(made, origins) if origins else made


def _telling_name(binding: relax.Binding) -> str:
    name: str = binding.var.name
    value = binding.value
    if not is_anonymous(name) or not isinstance(value, ir.Call):
        return name
    if isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
        return _short(str(value.args[0].name_hint).removeprefix("fused_"))
    return value.op.name.rpartition(".")[2] if isinstance(value.op, ir.Op) else name


def _short(name: str) -> str:
    """The name; a long one, of a kernel of many ops, ends after those that fit."""
    if len(name) <= _MOST_LETTERS:
        return name
    return f"{name[:_MOST_LETTERS].rpartition('_')[0]}_etc"


def is_anonymous(name: str) -> bool:
    """Whether a pass gave the name, such as lv3."""
    return _ANONYMOUS.fullmatch(name) is not None


def unused_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
