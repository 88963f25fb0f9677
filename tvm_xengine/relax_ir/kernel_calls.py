"""Kernel calls and the uses of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import single_block

_ORIGINS = "tvm_xengine.origins"
"""Attribute of a function: what its fused calls were before."""
VIEW_OP = "relax.reshape"
"""The Relax op that shows the same bytes under another shape; LowerToKernels leaves no other."""

_CALL_TIR = ir.Op.get("relax.call_tir")
_RESHAPE = ir.Op.get(VIEW_OP)


@dataclass(frozen=True)
class KernelCall:
    """One binding of a function that ``LowerToKernels`` has made.

    Attributes
    ----------
    position
        Of the binding in its block.
    """

    position: int
    var: relax.Var
    kernel: ir.GlobalVar
    args: tuple[relax.Expr, ...]

    @property
    def outputs(self) -> tuple[relax.Type, ...]:
        """Types of what it makes."""
        ty = self.var.ty
        return tuple(ty.fields) if isinstance(ty, relax.TupleType) else (ty,)


def kernel_call(position: int, binding: relax.Binding) -> KernelCall | None:
    """The kernel call that a binding is, None for a view or an item of a tuple."""
    value = binding.value
    if not isinstance(value, ir.Call) or not _CALL_TIR.same_as(value.op):
        return None
    return KernelCall(position, binding.var, value.args[0], tuple(value.args[1].fields))


def is_view(value: relax.Expr) -> bool:
    """Whether an expression shows the bytes of a tensor under another shape."""
    return isinstance(value, ir.Call) and _RESHAPE.same_as(value.op)


def same_bytes(bindings: Sequence[relax.Binding]) -> Mapping[relax.Var, relax.Var]:
    """For each view or second name of a variable, that variable."""
    base: dict[relax.Var, relax.Var] = {}
    for binding in bindings:
        source = binding.value.args[0] if is_view(binding.value) else binding.value
        if isinstance(source, relax.Var):
            base[binding.var] = base.get(source, source)
    return base


def kernels_called(func: relax.Function) -> list[str]:
    """Names of the kernels that a function calls, each once, in order."""
    calls = (kernel_call(*at) for at in enumerate(single_block(func).bindings))
    return list(dict.fromkeys(call.kernel.name_hint for call in calls if call is not None))


def read_origins(func: relax.Function) -> Mapping[str, tuple[str, ...]]:
    """For each fused call the variables of its parts, in their order.

    For the gradient of a parameter that several ops read, the op that it is the gradient of. Other
    calls are left out.
    """
    rows = func.attrs.get(_ORIGINS, {}) if func.attrs else {}
    return {str(name): tuple(map(str, parts)) for name, parts in rows.items()}


def write_origins(func: relax.Function, origins: Mapping[str, tuple[str, ...]]) -> relax.Function:
    """`func` with an attribute that states `origins`."""
    return func.with_attr(_ORIGINS, {name: list(parts) for name, parts in origins.items()})
