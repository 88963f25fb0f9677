"""Fake quantization is PyTorch's at halves, bounds, infinities and NaN; gradients go straight through."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
import torch

from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status
from tests.shares import first
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.read import from_torch_export

Function = Callable[[torch.Tensor], torch.Tensor]

NUMBERS = (0.0, 0.01, 0.03, -0.05, 2.49, 2.5, 2.54, 2.56, -2.57, -2.58, -2.62, -2.63, 1e10, -1e10)
BEYOND = (nan, -nan, -inf, inf)
"""Of the last, PyTorch makes the least number by channels: what C++ leaves open, as it becomes an integer."""


def by_channel(x: torch.Tensor, axis: int) -> torch.Tensor:
    count = x.shape[axis]
    steps = torch.linspace(0.01, 0.3, count)
    points = torch.arange(count, dtype=torch.int32) - 1
    return torch.fake_quantize_per_channel_affine(x, steps, points, axis, -8, 7)


def by_tensors(x: torch.Tensor) -> torch.Tensor:
    point = torch.zeros(1, dtype=torch.int32) + 3
    return torch.fake_quantize_per_tensor_affine(x, torch.ones(1) * 0.02, point, 0, 255)


BY_TENSOR: dict[str, Function] = {
    "one step": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 3, -128, 127),
    "steps that are tensors": by_tensors,
    "infinite gradients": lambda x: by_tensors(x).cos() * x,
}
BY_CHANNEL: dict[str, Function] = {
    "steps of rows": lambda x: by_channel(x, 0),
    "steps of columns": lambda x: by_channel(x, 1),
    "two in a row": lambda x: by_channel(by_tensors(x).cos(), 1) * x,
}


@pytest.mark.parametrize("dtype", first(1, [torch.float32, torch.float64]))
def test_values_and_gradients_are_pytorchs(dtype: torch.dtype) -> None:
    x = torch.tensor([*NUMBERS, *BEYOND], dtype=dtype).view(2, -1)
    samples = {name: Sample(function, ((x,), {})) for name, function in BY_TENSOR.items()}
    x = x.clamp(-1e9, 1e9)
    samples |= {name: Sample(function, ((x,), {})) for name, function in BY_CHANNEL.items()}
    judged = judge("fake_quantize", [one.requires_grad_(True) for one in samples.values()])
    outcomes = dict(zip(samples, judged, strict=True))
    assert not {name: one for name, one in outcomes.items() if one[0] is not Status.EQUAL}


def test_a_zero_point_that_is_no_whole_number_is_refused_by_name() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        steps, points = torch.ones(2), torch.full((2,), 0.5)
        return torch.fake_quantize_per_channel_affine(x, steps, points, 0, -8, 7)

    program = torch.export.export(Sample(function, ((torch.ones(2, 3),), {})), ())
    with pytest.raises(UnsupportedModelError, match="zero points that are no whole numbers"):
        from_torch_export(program)
