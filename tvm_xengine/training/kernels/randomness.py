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
    threshold = tvm.tirx.const(min(int(rate * 2**32), 2**32 - 1), "uint32")
    scale = tvm.tirx.const(1 / (1 - rate), data.dtype)

    def element(*i: Var) -> Expr:
        flat = _flat(i, data.shape)
        key = _hash(_mixed(seed().astype("uint32"), step().astype("uint32"), op))
        random = _hash(_xor(_hash(flat.astype("uint32")), key))
        return tvm.tirx.Select(random < threshold, tvm.tirx.const(0, data.dtype), data(*i) * scale)

    return te.compute(data.shape, element, name="dropped")


def _mixed(seed: Expr, step: Expr, op: int) -> Expr:
    word = _hash(seed + _word(0x9E3779B9))
    word = _hash(_xor(word, step))
    return _xor(word, _word(op * 0x85EBCA6B + 0x27D4EB2F))


def _hash(word: Expr) -> Expr:
    word = _xor(word, word >> _word(16)) * _word(0x85EBCA6B)
    word = _xor(word, word >> _word(13)) * _word(0xC2B2AE35)
    return _xor(word, word >> _word(16))


def _word(value: int) -> Expr:
    return tvm.tirx.const(value % 2**32, "uint32")


def _xor(left: Expr, right: Expr) -> Expr:
    return tvm.tirx.bitwise_xor(left, right)


def _flat(position: tuple[Var, ...], shape: list[Expr]) -> Expr:
    flat: Expr = tvm.tirx.const(0, "int32")
    for index, extent in zip(position, shape, strict=True):
        flat = flat * int(extent) + index
    return flat
