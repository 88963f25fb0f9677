"""One op with attributes and operands, and the means to draw them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from tvm import relax

Array = NDArray[Any]
Value = TypeVar("Value")

DTYPE = "float64"


@dataclass(frozen=True)
class Case:
    """An op applied to tensors.

    Attributes
    ----------
    operator
        From Relax variables, one per operand, to the result.
    reference
        The same in PyTorch; None where PyTorch has no such op, so that only finite differences
        judge.
    operands
        The tensors by name; those of floats get a gradient.
    smooth
        Whether the op has a derivative at the operands, so that finite differences make sense.
    fixed
        Operands without gradient, though they are floats.
    """

    operator: Callable[..., relax.Expr]
    reference: Callable[..., torch.Tensor] | None
    operands: Mapping[str, Array]
    smooth: bool = True
    fixed: tuple[str, ...] = ()


class Draw:
    """Draws attributes by hypothesis, and the numbers in tensors from a seed that it chooses."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._random = np.random.default_rng(draw(st.integers(0, 2**16)))

    def integer(self, low: int, high: int) -> int:
        """A whole number between two bounds."""
        number: int = self._draw(st.integers(low, high))
        return number

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """Several of them."""
        return [self.integer(low, high) for _ in range(count)]

    def number(self, low: float, high: float) -> float:
        """A number between two bounds, on a grid of sixteen steps."""
        return low + (high - low) * self.integer(0, 16) / 16

    def flag(self) -> bool:
        """True or False."""
        value: bool = self._draw(st.booleans())
        return value

    def one_of(self, values: Sequence[Value]) -> Value:
        """One of several values."""
        value: Value = self._draw(st.sampled_from(values))
        return value

    def some_of(self, values: Sequence[Value]) -> list[Value]:
        """At least one of several values, in any order."""
        order: list[Value] = self._draw(st.permutations(values))
        return order[: self.integer(1, len(order))]

    def permutation(self, values: Sequence[Value]) -> list[Value]:
        """All of the values in any order."""
        order: list[Value] = self._draw(st.permutations(values))
        return order

    def shape(
        self, *, ranks: tuple[int, int] = (1, 4), extents: tuple[int, int] = (1, 4)
    ) -> list[int]:
        """A shape."""
        return self.integers(self.integer(*ranks), *extents)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int) -> list[int] | None:
        """Different axes, counted from either end; None means all of them."""
        if self.flag():
            return None
        return [axis - rank if self.flag() else axis for axis in self.some_of(range(rank))]

    def broadcastable(self, count: int, *, extents: tuple[int, int] = (1, 4)) -> list[list[int]]:
        """Shapes that broadcast with one another."""
        full = self.shape(extents=extents)
        return [
            [extent if self.flag() else 1 for extent in full][self.integer(0, len(full)) :]
            if position
            else full
            for position in range(count)
        ]

    def normal(self, *shape: int) -> Array:
        """Normally distributed numbers."""
        return self._random.standard_normal(shape).astype(DTYPE)

    def uniform(self, low: float, high: float, *shape: int) -> Array:
        """Evenly distributed numbers."""
        return self._random.uniform(low, high, shape).astype(DTYPE)

    def distinct(self, *shape: int) -> Array:
        """Numbers of which no two are close to each other or to zero."""
        count = int(np.prod(shape))
        return ((self._random.permutation(count) - count / 2 + 0.25) * 0.37).reshape(shape)

    def indices(self, extent: int, *shape: int) -> Array:
        """Positions on an axis."""
        return self._random.integers(0, extent, shape)


DrawCase = Callable[[Draw], Case]


def case_strategy(draw_case: DrawCase) -> st.SearchStrategy[Case]:
    """The cases that a function draws, sometimes with operands that need no gradient."""

    @st.composite
    def strategy(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
        case = draw_case(Draw(draw))
        trained = [
            name
            for name, value in case.operands.items()
            if value.dtype == DTYPE and name not in case.fixed
        ]
        frozen = [name for name in trained[1:] if draw(st.integers(0, 3)) == 3]
        if len(trained) > 1 and draw(st.integers(0, 5)) == 5:
            frozen = trained[:-1]
        return replace(case, fixed=(*case.fixed, *frozen))

    return strategy()
