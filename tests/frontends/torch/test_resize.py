"""Resizing of any number of axes comes from PyTorch with its coordinates."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.training.autograd import exported, worst_gradient_error


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


class Uneven(Resizes):
    """Factors whose products with the extents are no integers: coordinates come from the factors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = x * self.weight
        line, room = image.flatten(2), image.reshape(2, 1, 5, 4, 2)
        parts = [
            F.interpolate(line, scale_factor=1.3, mode="nearest"),
            F.interpolate(line, scale_factor=0.77, mode="linear"),
            F.interpolate(image, scale_factor=(1.3, 0.7), mode="nearest-exact"),
            F.interpolate(image, scale_factor=1.3, mode="bilinear"),
            F.interpolate(image, scale_factor=(1.7, 2), mode="bicubic"),
            F.interpolate(room, scale_factor=1.45, mode="trilinear"),
            F.interpolate(room, scale_factor=(0.7, 1.3, 2.6), mode="nearest"),
        ]
        return torch.cat([part.flatten(1) for part in parts], 1)


@pytest.mark.slow
@pytest.mark.parametrize("module", [Resizes, Uneven])
def test_gradients_are_those_of_autograd(module: type[Resizes]) -> None:
    torch.manual_seed(0)
    network, x = module(), torch.randn(2, 2, 5, 4)
    labels = torch.tensor([3, 100])
    assert worst_gradient_error(exported(network, x), network, x, labels) < 1e-4
