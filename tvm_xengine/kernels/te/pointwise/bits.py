"""The parts of floating-point numbers (IEEE 754)."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import te
from tvm.tirx import Expr

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.pointwise.function import Pointwise, const, either, isnan, select, zero


@dataclass(frozen=True)
class _Format:
    """Integers of the same width, bits of the fraction, and the exponent's bias and mask."""

    integer: str
    fraction: int
    bias: int
    mask: int


_FORMATS = {
    "float32": _Format("int32", 23, 127, 0xFF),
    "float64": _Format("int64", 52, 1023, 0x7FF),
}


def _parts(a: Expr) -> tuple[Expr, Expr]:
    """(fraction with the sign, at least 1/2 and below 1; exponent); (a, 0) of 0, infinity and NaN."""
    dtype = str(a.ty.dtype)
    if dtype not in _FORMATS:
        raise UnsupportedModelError(
            f"frexp: expected float32 or float64, found {dtype}; convert the tensor with float()"
        )
    form = _FORMATS[dtype]
    # Numbers below the least normal one have no exponent of their own.
    is_small = te.abs(a) < const(2.0 ** (1 - form.bias), a)
    shift = form.fraction + 1
    normal = select(is_small, a * const(2.0**shift, a), a)
    bits = tvm.tirx.reinterpret(form.integer, normal)

    def whole(value: int) -> Expr:
        return tvm.tirx.const(value, form.integer)

    found = (bits >> whole(form.fraction)) & whole(form.mask)
    rest = bits & whole(-1 - (form.mask << form.fraction))
    half = tvm.tirx.reinterpret(dtype, rest | whole((form.bias - 1) << form.fraction))
    exponent = (found - whole(form.bias - 1)).astype(dtype)
    exponent = select(is_small, exponent - float(shift), exponent)
    is_plain = either(a == zero(a), isnan(a), te.abs(a) == float("inf"))
    return select(is_plain, a, half), select(is_plain, zero(a), exponent)


def _slope(g: Expr, a: Expr, y: Expr) -> Expr:
    """The fraction is the number over a power of two that is held fixed."""
    has_exponent = tvm.tirx.all(a != zero(a), te.abs(a) < float("inf"))
    return select(has_exponent, g * (y / select(a == zero(a), const(1, a), a)), g)


BITS: dict[str, Pointwise] = {
    "frexp_exponent": Pointwise(lambda a: _parts(a)[1], (None,)),
    "frexp_mantissa": Pointwise(lambda a: _parts(a)[0], (_slope,)),
}
