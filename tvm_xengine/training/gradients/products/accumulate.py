"""Products that are accumulated in a longer type than that of their result."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.training.emitter import Emitter, dtype_of


def narrowed(emitter: Emitter, product: relax.Call, dtype: str, name: str) -> relax.Expr:
    """Bind a product, cast to `dtype` where it was added up in another type.

    Fusion makes one kernel of the product and the cast.
    """
    if str(product.attrs.out_dtype) == dtype:
        return emitter.bind(product, name)
    wide = emitter.bind(product, f"{name}_wide")
    return emitter.bind(relax.op.astype(wide, dtype), name)


def in_type_of(
    emitter: Emitter, gradient: relax.Expr, operand: relax.Expr, name: str
) -> relax.Expr:
    """A gradient in the type of an operand, where a product's result has a longer one."""
    if dtype_of(gradient) == dtype_of(operand):
        return gradient
    return emitter.bind(relax.op.astype(gradient, dtype_of(operand)), f"{name}_backward_narrow")
