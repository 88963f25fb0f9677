"""The batch that a step is given."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.graph import Role


def batch_extent(func: relax.Function) -> int:
    """How many samples a step is given: the first dimension of its first input that has one."""
    shapes = (static_shape(param.ty) for param in batch_parameters(func))
    return next((shape[0] for shape in shapes if shape), 1)


def batch_parameters(func: relax.Function) -> list[relax.Var]:
    """The parameters of a step that hold its batch."""
    roles = StepSignature.read(func).roles
    return [p for p, role in zip(func.params, roles, strict=True) if role is Role.BATCH]
