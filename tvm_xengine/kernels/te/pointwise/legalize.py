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
    numbers = options_of(call)
    formula = POINTWISE[name].formula
    kernel = derivative_kernel(name, lambda *elements: formula(*elements, *numbers))
    tensors = [one for one in call.args if isinstance(one.ty, relax.TensorType)]
    shape = static_shape(call.ty)
    return builder.call_te(
        lambda *inputs: kernel(*inputs, shape=shape), *tensors, primfunc_name_hint=name
    )
