"""Dropout and rounding by functions of (seed, step, op, element), so that repeating them repeats them.

The generator hashes a counter with the finaliser of MurmurHash3 (Appleby), twice; no state is
kept, nothing is saved for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te
from tvm.tirx import Expr, Var


def dropout(
    data: te.Tensor, seed: te.Tensor, step: te.Tensor, *, rate: float, op: int
) -> te.Tensor:
    """Zero where the element's random number is below `rate`, data / (1 - rate) elsewhere.

    Its gradient is the same kernel applied to the gradient of the output.
    """
    scale = tvm.tirx.const(1 / (1 - rate), data.dtype)
    word = _words(data, seed, step, op)

    def element(*i: Var) -> Expr:
        random = word(*i)
        zero = tvm.tirx.const(0, data.dtype)
        # Compared as a float: TVM's simplifier takes unsigned products not to wrap around, and
        # decides a comparison of integers too early.
        share = random.astype("float32") * tvm.tirx.const(2.0**-32, "float32")
        dropped = share < tvm.tirx.const(rate, "float32")
        return tvm.tirx.Select(dropped, zero, data(*i) * scale)

    return te.compute(data.shape, element, name="dropped")


_FRACTION_BITS = {"float16": 10, "bfloat16": 7}
_LEAST_EXPONENT = {"float16": 113, "bfloat16": 8}
"""Exponent, as float32 has it, below which steps get no finer: that of float16's least normal number,
and the least for which the scale of bfloat16 below is a number of float32."""


def rounded_at_random(
    data: te.Tensor, seed: te.Tensor, step: te.Tensor, *, dtype: str, op: int
) -> te.Tensor:
    """Numbers of float32 in a short type, rounded up as often as they are near the upper neighbour.

    So the mean of the result is the number (Gupta et al., Deep Learning with Limited Numerical
    Precision, ICML 2015). All steps before the comparison are exact, so that every machine rounds the
    same number in the same way.

    Parameters
    ----------
    dtype
        ``float16`` or ``bfloat16``.
    """
    word = _words(data, seed, step, op)

    def element(*i: Var) -> Expr:
        # 24 bits, so that it is exact; what is rounded off a normal number has 13 or 16.
        share = (word(*i) >> _word(8)).astype("float32") * tvm.tirx.const(2.0**-24, "float32")
        return _let("value", data(*i), lambda v: _rounded(v, share, dtype)).astype(dtype)

    return te.compute(data.shape, element, name="rounded")


def _rounded(value: Expr, share: Expr, dtype: str) -> Expr:
    """A neighbour of `value` in a type: the upper one where `share` is below the distance to the lower."""
    fraction = _FRACTION_BITS[dtype]
    one, zero = tvm.tirx.const(1.0, "float32"), tvm.tirx.const(0.0, "float32")

    def scaled(exponent: Expr) -> Expr:
        """A whole number of steps, of which there are 2 ** `fraction` from one power to the next."""
        steps = value * _power(254 + fraction - exponent)
        return _let("steps", steps, whole) * _power(exponent - fraction)

    def whole(steps: Expr) -> Expr:
        def raised(lower: Expr) -> Expr:
            return lower + tvm.tirx.Select(share < steps - lower, one, zero)

        return _let("lower", tvm.tirx.floor(steps), raised)

    exponent = (tvm.tirx.reinterpret("int32", value) >> 23) & 255
    return _let("exponent", tvm.tirx.max(exponent, _LEAST_EXPONENT[dtype]), scaled)


def _words(data: te.Tensor, seed: te.Tensor, step: te.Tensor, op: int) -> Callable[..., Expr]:
    """32 random bits for each element of a tensor, by its indices."""
    mixed = te.compute(
        (), lambda: _hashed(_xor(_hashed(_bits(seed())), _bits(step()))), name="mixed"
    )
    salt = _word(op * 0x85EBCA6B + 0x27D4EB2F)
    key = te.compute((), lambda: _hashed(_xor(mixed(), salt)), name="key")
    return lambda *i: _hashed(_xor(_hashed(_bits(_flat(i, data.shape))), key()))


def _hashed(word: Expr) -> Expr:
    """Three rounds of shift, xor and multiplication; each value is bound, not repeated."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bound = tvm.tirx.Var("word", "uint32")
        folded = tvm.tirx.Let(bound, word, _xor(bound, bound >> _word(shift)))
        # TVM tells LLVM that unsigned products do not wrap around; in 64 bits this one does not.
        wide = folded.astype("uint64") * tvm.tirx.const(factor, "uint64")
        word = wide.astype("uint32")
    return word


def _let(name: str, value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body` of a value that is computed once."""
    var = tvm.tirx.Var(name, value.ty.dtype)
    return tvm.tirx.Let(var, value, body(var))


def _power(exponent: Expr) -> Expr:
    """The power of two with this exponent, as float32 has it."""
    return tvm.tirx.reinterpret("float32", exponent << 23)


def _bits(value: Expr) -> Expr:
    return value.astype("uint32")


def _word(value: int) -> Expr:
    return tvm.tirx.const(value % 2**32, "uint32")


def _xor(left: Expr, right: Expr) -> Expr:
    return tvm.tirx.bitwise_xor(left, right)


def _flat(position: tuple[Var, ...], shape: list[Expr]) -> Expr:
    flat: Expr = tvm.tirx.const(0, "int32")
    for index, extent in zip(position, shape, strict=True):
        flat = flat * int(extent) + index
    return flat
