"""Random kernels of a few stages, and what numpy computes for them.

All numbers are small integers, so that results are exact in float32 whatever the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from tvm import te, tirx

LARGEST = 2.0**22
"""Sums of a few such numbers are exact in float32."""


@dataclass(frozen=True)
class RandomKernel:
    """A kernel and arrays that it is given, and the outputs by numpy."""

    func: tirx.PrimFunc
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]


class _InKernel:
    """What a kernel is made of."""

    def read(self, x: te.Tensor, at: Sequence[Any], outside: float) -> Any:
        extents = map(int, x.shape)
        inside = [part for n, size in zip(at, extents, strict=True) for part in (n >= 0, n < size)]
        return tirx.if_then_else(tirx.all(*inside), x[tuple(at)], self.number(outside))

    def choose(self, condition: Any, a: Any, b: Any, is_select: bool) -> Any:
        return (tirx.Select if is_select else tirx.if_then_else)(condition, a, b)

    def equal(self, a: Any, b: int) -> Any:
        return a.equal(b)

    def largest(self, a: Any, b: Any) -> Any:
        return tirx.max(a, b)

    def number(self, value: float) -> Any:
        return tirx.const(value, "float32")


class _InNumpy:
    """The same at all points of the loops at once."""

    def read(self, x: np.ndarray, at: Sequence[Any], outside: float) -> Any:
        at = np.broadcast_arrays(*at)
        inside = np.logical_and.reduce(
            [(n >= 0) & (n < e) for n, e in zip(at, x.shape, strict=True)]
        )
        found = np.full(at[0].shape, outside)
        found[inside] = x[tuple(n[inside] for n in at)]
        return found

    def choose(self, condition: Any, a: Any, b: Any, is_select: bool) -> Any:
        return np.where(condition, a, b)

    def equal(self, a: Any, b: int) -> Any:
        return np.equal(a, b)

    def largest(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def number(self, value: float) -> Any:
        return np.float64(value)


_Index = Callable[[Sequence[Any]], Any]
_Term = Callable[[Any, Sequence[Any], Sequence[Any]], Any]

_STEPS: Sequence[Callable[[Any, int], Any]] = (
    lambda v, n: v // n,
    lambda v, n: v % n,
    lambda v, n: v * n,
    lambda v, n: v + n,
    lambda v, n: v - n,
    lambda v, n: n - v,
)


def _index(r: Random, loops: int, depth: int) -> _Index:
    if depth == 0 or r.random() < 0.2:
        k = r.randrange(loops)
        return lambda at: at[k]
    first = _index(r, loops, depth - 1)
    if r.random() < 0.15:
        second = _index(r, loops, depth - 1)
        return lambda at: first(at) + second(at)
    step, number = r.choice(_STEPS), r.choice([1, 2, 3, 4, 5, 7, 8, 9])
    return lambda at: step(first(at), number)


def _condition(r: Random, loops: int) -> Callable[[Any, Sequence[Any]], Any]:
    index, number, modulus = _index(r, loops, r.randrange(3)), r.randrange(6), r.choice([2, 3, 4])
    return r.choice(
        [
            lambda _, at: index(at) < number,
            lambda _, at: index(at) >= number,
            lambda side, at: side.equal(index(at) % modulus, number % modulus),
            lambda side, at: side.equal(index(at), number),
        ]
    )


def _term(r: Random, shapes: Sequence[tuple[int, ...]], loops: int, depth: int) -> _Term:
    kind = (
        "read"
        if depth == 0
        else r.choice(["read", "times", "plus", "more", "largest", "choice", "choice"])
    )
    if kind == "read":
        n, outside = r.randrange(len(shapes)), float(r.choice([0, 0, -1, 1]))
        indices = [_index(r, loops, r.choice([0, 1, 1, 2, 3])) for _ in shapes[n]]
        return lambda side, at, of: side.read(of[n], [index(at) for index in indices], outside)
    a = _term(r, shapes, loops, depth - 1)
    number = float(r.choice([-1, 0, 0, 1]))
    if kind == "more":
        return lambda side, at, of: a(side, at, of) + side.number(number)
    b = _term(r, shapes, loops, depth - 1)
    if kind == "times":
        return lambda side, at, of: a(side, at, of) * b(side, at, of)
    if kind == "plus":
        return lambda side, at, of: a(side, at, of) + b(side, at, of)
    if kind == "largest":
        return lambda side, at, of: side.largest(a(side, at, of), b(side, at, of))
    condition, is_select, is_number = _condition(r, loops), r.random() < 0.4, r.random() < 0.6

    def choice(side: Any, at: Sequence[Any], of: Sequence[Any]) -> Any:
        other = side.number(number) if is_number else b(side, at, of)
        return side.choose(condition(side, at), a(side, at, of), other, is_select)

    return choice


def random_kernel(seed: int) -> RandomKernel | None:
    """The kernel of a seed; None where its numbers become too large to be exact."""
    r, rng = Random(seed), np.random.default_rng(seed)
    sizes = [1, 2, 3, 4, 5, 8, 9, 16, 18]
    shapes = [tuple(r.choices(sizes, k=r.randint(1, 4))) for _ in range(r.randint(1, 2))]
    inputs = [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]
    tensors = [te.placeholder(shape, "float32", name=f"x{n}") for n, shape in enumerate(shapes)]
    arrays: list[np.ndarray] = list(inputs)
    outputs: set[int] = set()
    for stage in range(r.randint(1, 3)):
        shape = tuple(r.choices(sizes, k=r.randint(1, 3)))
        summed = tuple(r.choices(sizes[:-1], k=r.choice([0, 0, 1, 1, 2])))
        loops = len(shape) + len(summed)
        term = _term(r, [array.shape for array in arrays], loops, r.randint(0, 2))
        axes = [te.reduce_axis((0, n), name=f"r{stage}_{k}") for k, n in enumerate(summed)]
        fold, by_numpy = r.choice(
            [(te.sum, np.sum), (te.sum, np.sum), (te.max, np.max), (te.min, np.min)]
        )
        value = np.broadcast_to(
            term(_InNumpy(), list(np.indices(shape + summed)), arrays), shape + summed
        )
        over = tuple(range(len(shape), loops))
        arrays.append((by_numpy(value, axis=over) if summed else value).astype("float32"))
        tensors.append(_stage(term, list(tensors), shape, axes, fold, f"s{stage}"))
        if r.random() < 0.4:
            outputs.add(len(tensors) - 1)
    outputs.add(len(tensors) - 1)
    if max(float(np.abs(array).max()) for array in arrays) >= LARGEST:
        return None
    order = sorted(outputs)
    func = te.create_prim_func([*tensors[: len(inputs)], *(tensors[n] for n in order)])
    return RandomKernel(func, inputs, [arrays[n] for n in order])


def _stage(
    term: _Term,
    tensors: Sequence[te.Tensor],
    shape: tuple[int, ...],
    axes: Sequence[Any],
    fold: Callable[..., Any],
    name: str,
) -> te.Tensor:
    def element(*at: Any) -> Any:
        value = term(_InKernel(), [*at, *(axis.var for axis in axes)], tensors)
        return fold(value, axis=list(axes)) if axes else value

    return te.compute(shape, element, name=name)
