"""Sums of products over named indices."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, IterVar, Var

from tvm_xengine.kernels.te.accumulate import summed


def contraction(
    *factors: te.Tensor, terms: str, output: str, extents: tuple[int, ...]
) -> te.Tensor:
    """The sum over all indices that the output lacks of the product of the factors.

    Parameters
    ----------
    terms
        The index letters of each factor, one word per factor.
    output
        Letters of the output. Letters that no factor has only repeat its values; equal letters
        mean that all other elements than those of the diagonal are zero.
    extents
        Extent of each letter of ``sorted(set(terms + output))`` (without spaces).
    """
    words = terms.split(" ") if factors else []
    letters = sorted(set("".join(words) + output))
    size = dict(zip(letters, extents, strict=True))
    reduced: dict[str, IterVar] = {
        letter: te.reduce_axis((0, size[letter]), name=letter)
        for letter in letters
        if letter not in output
    }

    def element(*i: Var) -> Expr:
        at: dict[str, Expr] = dict(reduced)
        on_diagonal = []
        for letter, position in zip(output, i, strict=True):
            if letter in at:
                on_diagonal.append(at[letter] == position)
            at.setdefault(letter, position)
        product = None
        for factor, word in zip(factors, words, strict=True):
            value = factor(*(at[letter] for letter in word))
            product = value if product is None else product * value
        return _only_where(on_diagonal, product, factors[0].dtype)

    shape = [size[letter] for letter in output]
    if not reduced:
        return te.compute(shape, element, name="contracted")
    return summed(shape, element, list(reduced.values()), factors[0].dtype, "contracted")


def _only_where(conditions: list[Expr], value: Expr, dtype: str) -> Expr:
    if not conditions:
        return value
    return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), value, tvm.tirx.const(0, dtype))
