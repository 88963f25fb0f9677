"""The pass that writes transcendental functions as arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.transcendentals import circular, exponentials
from tvm_xengine.kernels.lower.transcendentals.terms import let
from tvm_xengine.relax_ir.kernel_attributes import CALLS_FUNCTIONS_ATTR

Part = TypeVar("Part", ir.Expr, tirx.Stmt)
Expansions = Mapping[str, Callable[..., ir.Expr]]


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

    A kernel in C with the attribute `CALLS_FUNCTIONS_ATTR` calls what it would else hold: ``erf`` of
    float32 becomes ``T.call_pure_extern("float32", "xe_erff", x[i])``, of which `written_out` has the body.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        in_c = func.attrs["target"].kind.name == "c"
        expansions = _EXPANSIONS if in_c else {**_EXPANSIONS, **_OF_ANGLES}
        if in_c and CALLS_FUNCTIONS_ATTR in func.attrs:
            expansions = _AS_CALLS
        return func.with_body(_expanded(func.body, expansions))


def written_out(function: str) -> tuple[ir.Var, ir.Expr] | None:
    """Argument and body of a function that kernels call; None where it is none of these."""
    if function not in _CALLED:
        return None
    x = ir.Var("x", "float32")
    return x, _expanded(_EXPANSIONS[_CALLED[function]](x), _AS_CALLS)


def _expanded(part: Part, expansions: Expansions) -> Part:
    return tvm_ffi.structural_map(part, (ir.Call, lambda call: _of_call(call, expansions)))


def _of_call(call: ir.Call, expansions: Expansions) -> ir.Expr:
    name = call.op.name if isinstance(call.op, ir.Op) else ""
    known, is_called = expansions.get(name), name in _CALLS
    if (known is None and not is_called) or any(map(_has_bfloat16, call.args)):
        return call

    def expansion(*args: ir.Expr) -> ir.Expr:
        return _call(name)(*args) if known is None else _expanded(known(*args), expansions)

    dtype = str(call.ty.dtype)
    if dtype == "float16":
        wide = [tirx.Cast("float32", x) for x in call.args]
        return tirx.Cast(dtype, _of(expansion, wide))
    if known is not None and (dtype == "float32" or name in _IN_EVERY_TYPE):
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


_EXPANSIONS: Expansions = {
    "tirx.exp": exponentials.exp,
    "tirx.log": exponentials.log,
    "tirx.log1p": exponentials.log1p,
    "tirx.sigmoid": exponentials.sigmoid,
    "tirx.tanh": exponentials.tanh,
    "tirx.erf": exponentials.erf,
    "tirx.cosh": exponentials.cosh,
    "tirx.sinh": exponentials.sinh,
}
_OF_ANGLES: Expansions = {
    "tirx.sin": circular.sin,
    "tirx.cos": circular.cos,
    "tirx.tan": circular.tan,
    "tirx.atan": circular.atan,
    "tirx.atan2": circular.atan2,
}
_IN_EVERY_TYPE = ("tirx.cosh", "tirx.sinh")
_CALLS = {"tirx.tanh": "tanh", "tirx.atanh": "atanh"}
"""Functions of the C library that TVM writes out with cancellation near zero: of 1e-17 it makes 0."""

_CALLED = {f"xe_{name.removeprefix('tirx.')}f": name for name in _EXPANSIONS}


def _as_call(function: str, name: str) -> Callable[[ir.Expr], ir.Expr]:
    def called(x: ir.Expr) -> ir.Expr:
        dtype = str(x.ty.dtype)
        is_known = dtype == "float32"
        return tirx.call_pure_extern(dtype, function, x) if is_known else _EXPANSIONS[name](x)

    return called


_AS_CALLS: Expansions = {name: _as_call(function, name) for function, name in _CALLED.items()}
