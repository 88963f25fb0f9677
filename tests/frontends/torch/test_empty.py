"""Operators among whose operands are tensors without elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import tvm_xengine as xe
from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status
from tvm_xengine.errors import UnsupportedModelError

Function = Callable[..., torch.Tensor | list[torch.Tensor]]


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


NOWHERE = torch.zeros(0, dtype=torch.int64)
NO_ROWS = torch.zeros(0, 2, dtype=torch.int64)
NOTHING_HIT = torch.zeros(3, 2, dtype=torch.bool)
CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "put": (lambda x, v: x.put(NOWHERE, v), (_drawn(3, 2), _drawn(0))),
    "put, added": (lambda x, v: x.put(NOWHERE, v, accumulate=True), (_drawn(3, 2), _drawn(0))),
    "scatter": (lambda x, v: x.scatter(0, NO_ROWS, v), (_drawn(3, 2), _drawn(0, 2))),
    "scatter of a number": (lambda x: x.scatter(0, NO_ROWS, 1.0), (_drawn(3, 2),)),
    "index_add": (lambda x, v: x.index_add(0, NOWHERE, v), (_drawn(3, 2), _drawn(0, 2))),
    "index_copy": (lambda x, v: x.index_copy(0, NOWHERE, v), (_drawn(3, 2), _drawn(0, 2))),
    "index_fill": (lambda x: x.index_fill(0, NOWHERE, 2.0), (_drawn(3, 2),)),
    "index_put": (lambda x, v: x.index_put((NOWHERE,), v), (_drawn(3, 2), _drawn(0, 2))),
    "index_reduce": (
        lambda x, v: x.index_reduce(0, NOWHERE, v, "prod"),
        (_drawn(3, 2), _drawn(0, 2)),
    ),
    "masked_scatter": (lambda x, v: x.masked_scatter(NOTHING_HIT, v), (_drawn(3, 2), _drawn(0))),
    "attention without keys": (
        F.scaled_dot_product_attention,
        (_drawn(1, 2, 3, 4), _drawn(1, 2, 0, 4), _drawn(1, 2, 0, 5)),
    ),
    "bags of nothing": (
        lambda table: F.embedding_bag(NOWHERE, table, torch.zeros(2, dtype=torch.int64)),
        (_drawn(4, 3),),
    ),
    "places of what is not zero": (
        lambda x: [x.sum(), *torch.nonzero(x, as_tuple=True)],
        (_drawn(5, 0, 5),),
    ),
    "slices": (lambda x: list(x.unbind(1)), (_drawn(0, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_pytorch(name: str) -> None:
    function, operands = CASES[name]
    sample = Sample(function, (operands, {})).requires_grad_(True)
    assert judge(name, [sample]) == [(Status.EQUAL, "")]


def test_an_example_without_samples_is_named() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"input input of shape \(0, 6\) has no elements"
    ):
        xe.training_step(torch.nn.Linear(6, 2), torch.zeros(0, 6), loss="mse")
