"""The order in which the calls of slices run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax


@dataclass(frozen=True)
class Emitted:
    """A binding, and the number of the slice that it belongs to; None where it belongs to all."""

    slice: int | None
    binding: relax.Binding


def in_order_of_slices(
    emitted: Sequence[Emitted], params: Sequence[relax.Var], parts: int
) -> list[relax.Binding]:
    """The bindings so that each slice goes as far as it can before the next one begins.

    What belongs to no slice comes as soon as it can. Otherwise the order given stays.
    """
    known = set(params)
    waiting: dict[int | None, list[Emitted]] = {k: [] for k in (None, *range(parts))}
    for one in emitted:
        waiting[one.slice].append(one)
    reads = {one.binding.var: _read(one.binding) for one in emitted}
    ordered: list[relax.Binding] = []
    while any(waiting.values()):
        before = len(ordered)
        for k in range(parts):
            for turn in (None, k):
                left = []
                for one in waiting[turn]:
                    if reads[one.binding.var] <= known:
                        known.add(one.binding.var)
                        ordered.append(one.binding)
                    else:
                        left.append(one)
                waiting[turn] = left
        if len(ordered) == before:
            raise ValueError("the bindings depend on one another in a circle")
    return ordered


def _read(binding: relax.Binding) -> frozenset[relax.Var]:
    return frozenset(relax.analysis.free_vars(binding.value))
