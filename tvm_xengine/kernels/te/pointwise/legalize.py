"""Own pointwise operators for TVM's ``LegalizeOps``, for functions that are not trained."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.kernels.te.elementwise import derivative_kernel
from tvm_xengine.kernels.te.pointwise.table import POINTWISE
from tvm_xengine.relax_ir.own_ops import PREFIX, options_of
from tvm_xengine.relax_ir.types import static_shape


def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The kernel of a call."""
    name = call.op.name.removeprefix(PREFIX)
    numbers = {f"option_{k}": number for k, number in enumerate(options_of(call))}
    formula = POINTWISE[name].formula
    kernel = derivative_kernel(
        name, lambda *elements, **options: formula(*elements, *options.values())
    )
    tensors = [one for one in call.args if isinstance(one.ty, relax.TensorType)]
    shape = static_shape(call.ty)
    return builder.call_te(
        lambda *inputs: kernel(*inputs, shape=shape, **numbers), *tensors, primfunc_name_hint=name
    )
