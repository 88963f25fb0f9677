"""Networks as sequences of layers, which PyTorch's pipeline can cut between two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tests.frontends.torch.networks import MLPerfBlock
from tests.networks.models.gpt import Block


@dataclass(frozen=True)
class Case:
    """A network and its batch; with a vocabulary it reads tokens.

    Attributes
    ----------
    cut
        Layers before it are the first stage of a pipeline: about half of the time.
    is_shared_unequally
        Whether it is also trained by a process and one with half its memory, of which neither has room for
        the batch in one piece, and by one and a slower one.
    is_beyond_one
        Whether it is also trained by such a pair of which neither has room for it in slices of the batch.
    """

    layers: Callable[[], list[nn.Module]]
    cut: int
    shape: tuple[int, ...]
    classes: int
    vocabulary: int | None = None
    is_shared_unequally: bool = False
    is_beyond_one: bool = False

    def module(self) -> nn.Sequential:
        """The network, with the same values in each process."""
        torch.manual_seed(0)
        return nn.Sequential(*self.layers()).train()

    def batches(self, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Inputs and labels, the same in each process."""
        random = torch.Generator().manual_seed(1)
        found = []
        for _ in range(count):
            if self.vocabulary is None:
                inputs = torch.randn(self.shape, generator=random)
            else:
                inputs = torch.randint(0, self.vocabulary, self.shape, generator=random)
            rows = self.shape[0] if self.vocabulary is None else inputs.numel()
            found.append((inputs, torch.randint(0, self.classes, (rows,), generator=random)))
        return found


class Embedding(nn.Module):
    """Tokens and their positions."""

    def __init__(self, tokens: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.positions.weight


def _mlp() -> list[nn.Module]:
    linear = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return [nn.Flatten(), *linear]


def _lenet() -> list[nn.Module]:
    first = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    last = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return [*first, *second, *last]


def _resnet8() -> list[nn.Module]:
    stem = (nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU())
    stages = (MLPerfBlock(16, 16, 1), MLPerfBlock(16, 32, 2), MLPerfBlock(32, 64, 2))
    return [*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]


def _ds_cnn() -> list[nn.Module]:
    # TensorFlow's "same" padding of 49 x 10.
    layers: list[nn.Module] = [nn.ZeroPad2d((1, 1, 4, 5)), nn.Conv2d(1, 64, (10, 4), 2)]
    layers += [nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, 1, 1, groups=64), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)]


def _gpt_nano() -> list[nn.Module]:
    blocks = (Block(48, 3) for _ in range(3))
    ends = (nn.LayerNorm(48), nn.Linear(48, 17, bias=False), nn.Flatten(0, 1))
    return [Embedding(17, 63, 48), *blocks, *ends]


CASES: Mapping[str, Case] = {
    "mlp": Case(_mlp, 3, (128, 1, 28, 28), 10, is_beyond_one=True),
    "lenet": Case(_lenet, 3, (128, 1, 28, 28), 10, is_shared_unequally=True),
    "resnet8": Case(_resnet8, 4, (32, 3, 32, 32), 10),
    "ds_cnn": Case(_ds_cnn, 10, (64, 1, 49, 10), 12),
    "gpt_nano": Case(_gpt_nano, 2, (32, 63), 17, vocabulary=17),
}
