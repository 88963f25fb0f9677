"""Dropout whose mask is a function of (seed, step, op, element), so that repeating it repeats it.

The generator hashes a counter with the finaliser of MurmurHash3 (Appleby), twice; no state is
kept, nothing is saved for the backward pass.
"""

from __future__ import annotations

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
    mixed = te.compute(
        (), lambda: _hashed(_xor(_hashed(_bits(seed())), _bits(step()))), name="mixed"
    )
    salt = _word(op * 0x85EBCA6B + 0x27D4EB2F)
    key = te.compute((), lambda: _hashed(_xor(mixed(), salt)), name="key")

    def element(*i: Var) -> Expr:
        random = _hashed(_xor(_hashed(_bits(_flat(i, data.shape))), key()))
        zero = tvm.tirx.const(0, data.dtype)
        # Compared as a float: TVM's simplifier takes unsigned products not to wrap around, and
        # decides a comparison of integers too early.
        share = random.astype("float32") * tvm.tirx.const(2.0**-32, "float32")
        dropped = share < tvm.tirx.const(rate, "float32")
        return tvm.tirx.Select(dropped, zero, data(*i) * scale)

    return te.compute(data.shape, element, name="dropped")


def _hashed(word: Expr) -> Expr:
    """Three rounds of shift, xor and multiplication; each value is bound, not repeated."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bound = tvm.tirx.Var("word", "uint32")
        folded = tvm.tirx.Let(bound, word, _xor(bound, bound >> _word(shift)))
        # TVM tells LLVM that unsigned products do not wrap around; in 64 bits this one does not.
        wide = folded.astype("uint64") * tvm.tirx.const(factor, "uint64")
        word = wide.astype("uint32")
    return word


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
