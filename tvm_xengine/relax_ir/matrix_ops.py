"""Operators on stacks of matrices that Relax lacks, registered with TVM.

Each has one kernel (:mod:`tvm_xengine.kernels.te.linalg`). Factorisations have no gradient of their own:
front ends write how a result changes with the matrix as a linear function of it, and
:func:`value_and_change` ties the two together.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax
from tvm.ir.op import register_op_attr

from tvm_xengine.relax_ir.own_ops import PREFIX, options_of
from tvm_xengine.relax_ir.types import static_shape

LU_SOLVE = PREFIX + "lu_solve"
"""Reads the rows that its second operand names, counted from 1."""

VALUE_AND_CHANGE = PREFIX + "value_and_change"

Shape = tuple[int, ...]


def _factors(a: Shape, *_: Shape) -> list[tuple[Shape, str]]:
    return [(a, ""), ((a[0], min(a[1:])), "int32")]


def _reflectors(a: Shape, *_: Shape) -> list[tuple[Shape, str]]:
    return [(a, ""), ((a[0], min(a[1:])), "")]


def _eigen(a: Shape, *_: Shape) -> list[tuple[Shape, str]]:
    return [(a[:2], ""), (a, "")]


def _same_as(position: int) -> Callable[..., list[tuple[Shape, str]]]:
    return lambda *shapes: [(shapes[position], "")]


MATRIX_OPS: dict[str, Callable[..., list[tuple[Shape, str]]]] = {
    "cholesky": _same_as(0),
    "eigen": _eigen,
    "lu_factor": _factors,
    "lu_solve": _same_as(2),
    "matrix_exp": _same_as(0),
    "product_of_reflections": lambda a, _tau, width: [((*a[:2], width), "")],
    "reflectors": _reflectors,
    "singular": lambda a, width: [
        ((*a[:2], width), ""),
        ((a[0], a[2]), ""),
        ((a[0], a[2], a[2]), ""),
    ],
    "solve_triangular": _same_as(1),
}
"""From the shapes of the operands, then options, to shapes and types of the results ("": the operands')."""


def matrix_op(name: str, *operands: relax.Expr | int) -> relax.Call:
    """A call of an operator of `MATRIX_OPS` on tensors, then whole numbers."""
    arguments = [
        one if isinstance(one, ir.Expr) else relax.prim_value(float(one)) for one in operands
    ]
    return relax.Call(ir.Op.get(PREFIX + name), arguments)


def value_and_change(value: relax.Expr, change: relax.Expr) -> relax.Call:
    """The value, whose derivative is that of the change; the change itself is not computed.

    With y = f(a) the change is df applied to `a`, a linear function in which everything else that
    depends on `a` is held fixed (``relax.grad.no_grad``): for the inverse Y of A it is - Y A Y.
    """
    return relax.Call(ir.Op.get(VALUE_AND_CHANGE), [value, change])


def _result_type(name: str) -> Callable[[relax.Call, relax.BlockBuilder], ir.Type]:
    def infer(call: relax.Call, _builder: relax.BlockBuilder) -> ir.Type:
        tensors = [one.ty for one in call.args if isinstance(one.ty, relax.TensorType)]
        shapes = [static_shape(ty) for ty in tensors]
        options = [int(number) for number in options_of(call)]
        made = [
            relax.TensorType(shape, dtype or tensors[0].dtype)
            for shape, dtype in MATRIX_OPS[name](*shapes, *options)
        ]
        return made[0] if len(made) == 1 else relax.TupleType(made)

    return infer


# TVM looks operators up by name in one registry per process, so importing this module fills it.
for _name in MATRIX_OPS:
    register_op_attr(PREFIX + _name, "FInferType", _result_type(_name))
    register_op_attr(PREFIX + _name, "FPurity", True)
register_op_attr(VALUE_AND_CHANGE, "FInferType", lambda call, _builder: call.args[0].ty)
register_op_attr(VALUE_AND_CHANGE, "FPurity", True)
