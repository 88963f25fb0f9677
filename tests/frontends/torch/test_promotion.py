"""Operands of different element types: what comes out is what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
import torch
from torch import nn

from tests.shares import share
from tests.training.autograd import worst_gradient_error
from tests.vm import computed
from tvm_xengine.frontends.torch.read import from_torch_export

TYPES = [
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
SCALARS = [True, 2, -1.5]
COMMUTATIVE = {"add", "multiply", "maximum", "equal"}
OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(torch.tensor([True, False, True]), a, b),
    "less": lambda a, b: a < b,
    "equal": lambda a, b: a == b,
    "clamp": lambda a, b: torch.clamp(a, min=b),
    "power": lambda a, b: a**b,
    "stack": lambda a, b: torch.stack([a, b]),
    "cat": lambda a, b: torch.cat([a, b]),
}
Pair = tuple[object, object]
"""Compiling takes longer than running."""


class AllPairs(nn.Module):
    """An operator on pairs of operands, each a number or the position of an input."""

    def __init__(self, function: Callable[..., torch.Tensor], pairs: list[Pair]) -> None:
        super().__init__()
        self.function = function
        self.pairs = pairs

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        results = [self.function(operand(a, x), operand(b, x)) for a, b in self.pairs]
        return torch.stack([result.double() for result in results])


def operand(named: object, x: tuple[torch.Tensor, ...]) -> object:
    return x[TYPES.index(named)] if isinstance(named, torch.dtype) else named


def pairs_of(name: str, x: tuple[torch.Tensor, ...]) -> list[Pair]:
    """Operands that PyTorch has the operator for; of a commutative one, in one order."""
    operands = [*TYPES, *SCALARS]
    both = product(operands, operands)
    ordered = combinations_with_replacement(operands, 2) if name in COMMUTATIVE else both
    pairs = [(a, b) for a, b in ordered if a in TYPES or b in TYPES]
    possible: list[Pair] = []
    function, is_power = OPERATORS[name], name == "power"
    for a, b in pairs:
        try:
            result = function(operand(a, x), operand(b, x))
        except (RuntimeError, TypeError):
            continue
        if not is_power or result.is_floating_point():  # powers of integers are refused
            possible.append((a, b))
    return possible


def imported(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> np.ndarray:
    """What our front end makes of a module, run on its own."""
    model = from_torch_export(torch.export.export(module, inputs))
    constants = [*model.parameters.values(), *model.constants.values()]
    (made,) = computed(model.mod, [*map(np.asarray, inputs), *constants])
    return made


FAST = ("add", "power", "equal", "cat")
"""Arithmetic, floats whatever comes in, a comparison, and several operands."""


@pytest.mark.parametrize("name", share(OPERATORS, FAST))
def test_mixed_operands_give_what_pytorch_gives(name: str) -> None:
    values = torch.tensor([1, 3, 2])
    x = tuple(values.to(dtype) * (-1 if dtype.is_signed else 1) for dtype in TYPES)
    pairs = pairs_of(name, x)
    assert len(pairs) > len(TYPES)
    module = AllPairs(OPERATORS[name], pairs)
    np.testing.assert_allclose(imported(module, x), module(*x).numpy(), rtol=1e-6)


class Counted(nn.Module):
    """Positions times a step, shares of counts, powers of two: all of them start as integers."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1]) * 0.01
        seen = (x > 0).sum(1, keepdim=True)
        share = seen / x.shape[1] + torch.sqrt(seen + 1) + (x > 0.5) * 2
        return self.row((x + places) * share) * 2.0**seen


def test_integers_beside_weights_train_as_pytorch_trains_them() -> None:
    torch.manual_seed(0)
    module = Counted().double()
    x, labels = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 4, 1, 2])
    model = from_torch_export(torch.export.export(module, (x,)))
    assert worst_gradient_error(model, module, x, labels) < 1e-9
