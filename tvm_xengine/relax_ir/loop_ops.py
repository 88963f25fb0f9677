"""Functions of elements whose loops end when the values say so, registered with TVM.

Each has one kernel (:mod:`tvm_xengine.kernels.te.loops`) on flat tensors of equal length.
"""

from __future__ import annotations

from tvm import ir, relax
from tvm.ir.op import register_op_attr

from tvm_xengine.relax_ir.own_ops import PREFIX

POLYNOMIAL_OPS = (
    *("chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he"),
    *("laguerre_l", "legendre_p"),
)
"""Orthogonal polynomials of an element, of the degree that stands in another tensor (int64)."""

LOOP_OPS = ("gcd", "hurwitz_zeta", *POLYNOMIAL_OPS)


def loop_op(name: str, *operands: relax.Expr) -> relax.Call:
    """A call of an operator of `LOOP_OPS`; the result is like the first operand."""
    return relax.Call(ir.Op.get(PREFIX + name), list(operands))


# TVM looks operators up by name in one registry per process, so importing this module fills it.
for _name in LOOP_OPS:
    register_op_attr(PREFIX + _name, "FInferType", lambda call, _builder: call.args[0].ty)
    register_op_attr(PREFIX + _name, "FPurity", True)
