"""Resizing of any number of axes comes from PyTorch with its coordinates."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.training.autograd import exported, worst_gradient_error
from tvm_xengine.errors import UnsupportedModelError


class Resizes(nn.Module):
    """Every mode of one and two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 2, 5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = x * self.weight
        line = image.flatten(2)
        parts = [
            F.interpolate(line, 31, mode="nearest"),
            F.interpolate(line, 13, mode="nearest-exact"),
            F.interpolate(line, 27, mode="linear"),
            F.interpolate(image, (7, 3), mode="bicubic"),
            F.interpolate(image, scale_factor=2, mode="bicubic", align_corners=True),
            F.interpolate(image, (3, 9), mode="nearest-exact"),
            F.interpolate(image, scale_factor=(1.4, 1.5), mode="bilinear"),
        ]
        return torch.cat([part.flatten(1) for part in parts], 1)


def test_gradients_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    module, x = Resizes(), torch.randn(2, 2, 5, 4)
    labels = torch.tensor([3, 100])
    assert worst_gradient_error(exported(module, x), module, x, labels) < 1e-4


def test_a_factor_that_gives_no_whole_size_is_refused() -> None:
    class Uneven(Resizes):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x * self.weight, scale_factor=1.3, mode="bilinear").flatten(1)

    with pytest.raises(UnsupportedModelError, match="recompute_scale_factor"):
        exported(Uneven(), torch.randn(2, 2, 5, 4))
