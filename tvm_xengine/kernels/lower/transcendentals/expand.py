"""The pass that writes transcendental functions as arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.transcendentals import circular, exponentials
from tvm_xengine.kernels.lower.transcendentals.terms import let


@tirx.transform.prim_func_pass(opt_level=0, name="ExpandTranscendentals")
class ExpandTranscendentals:
    """Replace calls of transcendental functions of float32 in kernels by polynomials.

    As calls into the C library they run one element at a time.

    .. code-block:: python

        y[i] = T.erf(x[i])

    becomes, with the square written out,

    .. code-block:: python

        y[i] = clip(T.let(c, clip(x[i]), c * P(c * c) / Q(c * c)))

    The relative error is a few units in the last place of float32, and what is at most 1 is at most 1.
    NaN stays NaN, ``exp`` of less than -87 is zero, ``log`` of less than 0 is NaN. Hyperbolic sine
    and cosine, which LLVM lacks, are written so in every type. Functions of angles reduce these in
    float64, which boards have no hardware for: in C they stay calls.
    Functions of something in bfloat16 stay: ``BF16ComputeLegalize`` does not look
    into the value of a let, so this must run once more behind it.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        in_c = func.attrs["target"].kind.name == "c"
        expansions = _EXPANSIONS if in_c else _EXPANSIONS | _OF_ANGLES

        def expand(call: ir.Call) -> ir.Expr:
            return _expanded(call, expansions)

        return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, expand)))


def _expanded(call: ir.Call, expansions: dict[str, Callable[..., ir.Expr]]) -> ir.Expr:
    name = call.op.name if isinstance(call.op, ir.Op) else ""
    expansion, is_called = expansions.get(name), name in _CALLS
    if (expansion is None and not is_called) or any(map(_has_bfloat16, call.args)):
        return call
    dtype = str(call.ty.dtype)
    if dtype == "float16":
        wide = [tirx.Cast("float32", x) for x in call.args]
        return tirx.Cast(dtype, _of(expansion or _call(name), wide))
    if expansion is not None and (dtype == "float32" or name in _IN_EVERY_TYPE):
        return _of(expansion, call.args)
    return _call(name)(*call.args) if is_called else call


def _of(function: Callable[..., ir.Expr], args: list[ir.Expr]) -> ir.Expr:
    """A function of values that are computed once."""
    if not args:
        return function()
    first, *rest = args
    return let(first, lambda x: _of(lambda *others: function(x, *others), rest))


def _call(name: str) -> Callable[[ir.Expr], ir.Expr]:
    """A function of the C library."""

    def called(x: ir.Expr) -> ir.Expr:
        dtype = str(x.ty.dtype)
        return tirx.call_pure_extern(dtype, f"{_CALLS[name]}{'f' * (dtype == 'float32')}", x)

    return called


def _has_bfloat16(expr: ir.Expr) -> bool:
    found: list[ir.Expr] = []

    def visit(part: ir.Expr) -> None:
        if "bfloat16" in str(part.ty):
            found.append(part)

    tvm_ffi.structural_walk(expr, (ir.Expr, visit))
    return bool(found)


_EXPANSIONS: dict[str, Callable[..., ir.Expr]] = {
    "tirx.exp": exponentials.exp,
    "tirx.log": exponentials.log,
    "tirx.log1p": exponentials.log1p,
    "tirx.sigmoid": exponentials.sigmoid,
    "tirx.tanh": exponentials.tanh,
    "tirx.erf": exponentials.erf,
    "tirx.cosh": exponentials.cosh,
    "tirx.sinh": exponentials.sinh,
}
_OF_ANGLES: dict[str, Callable[..., ir.Expr]] = {
    "tirx.sin": circular.sin,
    "tirx.cos": circular.cos,
    "tirx.tan": circular.tan,
    "tirx.atan": circular.atan,
    "tirx.atan2": circular.atan2,
}
_IN_EVERY_TYPE = ("tirx.cosh", "tirx.sinh")
_CALLS = {"tirx.tanh": "tanh", "tirx.atanh": "atanh"}
"""Functions of the C library that TVM writes out with cancellation near zero: of 1e-17 it makes 0."""
