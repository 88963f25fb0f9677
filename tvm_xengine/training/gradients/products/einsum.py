"""Gradients of Einstein sums: that of a factor contracts the other factor with the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.einsum import contraction
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


@dataclass(frozen=True)
class _Pair:
    """A contraction of one or two earlier tensors, by position; the operands come first."""

    factors: tuple[int, ...]
    term: str


def _einsum(emitter: Emitter, site: Site) -> Linearized:
    """Many factors are contracted two at a time, in the order that numpy finds cheapest."""
    terms, output = _letters(site)
    extents = _extents(terms, site.operands)
    tensors, needed = list(site.operands), list(site.needs)
    pairs = _pairs(terms, output, [shape_of(operand) for operand in site.operands])
    words = [*terms, *(pair.term for pair in pairs)]
    for k, pair in enumerate(pairs):
        name = site.name if k == len(pairs) - 1 else f"{site.name}_pair"
        options = _options([words[f] for f in pair.factors], pair.term, extents)
        tensors.append(
            emitter.call(contraction, [tensors[f] for f in pair.factors], name, **options)
        )
        needed.append(any(needed[f] for f in pair.factors))

    def pullback(gradients: Gradients) -> Gradients:
        found: dict[int, relax.Expr | None] = {len(tensors) - 1: gradients[0]}
        for made, pair in reversed(list(enumerate(pairs, start=len(terms)))):
            for factor in pair.factors:
                if needed[factor]:
                    found[factor] = _gradient(found[made], made, pair, factor)
        return tuple(found.get(position) for position in range(len(terms)))

    def _gradient(gradient: relax.Expr | None, made: int, pair: _Pair, factor: int) -> relax.Expr:
        others = [f for f in pair.factors if f != factor]
        name = site.grad_name(factor) if factor < len(terms) else f"{site.name}_pair_backward"
        options = _options([words[made], *(words[f] for f in others)], words[factor], extents)
        return emitter.call(contraction, [gradient, *(tensors[f] for f in others)], name, **options)

    return Linearized((tensors[-1],), pullback)


def _pairs(terms: Sequence[str], output: str, shapes: Sequence[tuple[int, ...]]) -> list[_Pair]:
    if len(terms) <= 2:
        return [_Pair(tuple(range(len(terms))), output)]
    likes = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    _, *path = np.einsum_path(f"{','.join(terms)}->{output}", *likes, optimize="greedy")[0]
    remaining = [(position, term) for position, term in enumerate(terms)]
    pairs: list[_Pair] = []
    for chosen in path:
        taken = [remaining.pop(position) for position in sorted(chosen, reverse=True)]
        kept = set(output).union(*(term for _, term in remaining))
        letters = "".join(sorted(set("".join(term for _, term in taken)) & kept))
        term = letters if remaining else output
        pairs.append(_Pair(tuple(position for position, _ in taken), term))
        remaining.append((len(terms) + len(pairs) - 1, term))
    return pairs


def _extents(terms: Sequence[str], operands: Sequence[relax.Expr]) -> dict[str, int]:
    return {
        letter: extent
        for term, operand in zip(terms, operands, strict=True)
        for letter, extent in zip(term, shape_of(operand), strict=True)
    }


def _options(terms: Sequence[str], output: str, extents: Mapping[str, int]) -> dict[str, Option]:
    used = sorted(set("".join(terms) + output))
    return {
        "terms": " ".join(terms),
        "output": output,
        "extents": tuple(extents[letter] for letter in used),
    }


def _letters(site: Site) -> tuple[list[str], str]:
    """Index letters of each factor and of the result, an ellipsis written out."""
    text = str(site.attrs.subscripts).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    free = [letter for letter in ascii_letters if letter not in text]
    ranks = [
        len(shape_of(operand)) - len(term.replace("...", ""))
        for term, operand in zip(terms, site.operands, strict=True)
        if "..." in term
    ]
    if len(set(ranks)) > 1:
        raise UnsupportedModelError(
            f"{site.name}: the ellipses of einsum {text!r} stand for {ranks} axes; "
            "write the axes out"
        )
    rest = "".join(free[: ranks[0]]) if ranks else ""
    named = sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
    if not arrow:
        right = ("..." if ranks else "") + "".join(named)
    return [term.replace("...", rest) for term in terms], right.replace("...", rest)


RULES: dict[str, Rule] = {"relax.einsum": _einsum}
