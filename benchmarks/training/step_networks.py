"""The networks whose training steps are held against PyTorch's, and what a block of each is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from tests.networks.models.gpt import GPT
from tests.networks.models.torchvision_models import torchvision_models
from tests.networks.models.unet import UNet

Blocks = Callable[[nn.Module], list[nn.Module]]


@dataclass(frozen=True)
class Case:
    """A network and the shape of its batch; with a vocabulary it reads tokens.

    Attributes
    ----------
    blocks
        What PyTorch may checkpoint, in the order it is computed.
    """

    name: str
    module: Callable[[], nn.Module]
    blocks: Blocks
    shape: tuple[int, ...]
    vocabulary: int | None = None

    @property
    def inputs(self) -> torch.Tensor:
        if self.vocabulary is None:
            return torch.randn(self.shape)
        return torch.randint(0, self.vocabulary, self.shape)


def vision(name: str) -> Callable[[], nn.Module]:
    """A model of torchvision for 1000 classes."""
    return lambda: getattr(torchvision_models(), name)(num_classes=1000)


def vgg19() -> nn.Module:
    """torchvision's, its convolutions in blocks that end with a pooling."""
    module = vision("vgg19")()
    blocks: list[list[nn.Module]] = [[]]
    for layer in module.features:
        blocks[-1].append(layer)
        if isinstance(layer, nn.MaxPool2d):
            blocks.append([])
    module.features = nn.Sequential(*(nn.Sequential(*block) for block in blocks if block))
    return module


def resnet18() -> nn.Module:
    """torchvision's, as a sequence of its first layers, its blocks and its head."""
    module = vision("resnet18")()
    stem = nn.Sequential(module.conv1, module.bn1, module.relu, module.maxpool)
    blocks = [block for k in range(1, 5) for block in getattr(module, f"layer{k}")]
    head = nn.Sequential(module.avgpool, nn.Flatten(), module.fc)
    return nn.Sequential(stem, *blocks, head)


CASES = [
    Case("resnet18", resnet18, lambda m: [*m], (8, 3, 224, 224)),
    Case("vgg19", vgg19, lambda m: [*m.features, m.classifier], (2, 3, 224, 224)),
    Case(
        "unet",
        lambda: UNet(2, 1, 2, width=64, depth=4),
        lambda m: [*m.down, *(merge for _, merge in m.up)],
        (2, 1, 128, 128),
    ),
    Case("mobilenet_v2", vision("mobilenet_v2"), lambda m: [*m.features], (8, 3, 224, 224)),
    Case(
        "gpt",
        lambda: GPT(128, tokens=256, width=256, heads=4, blocks=4),
        lambda m: [*m.blocks],
        (8, 128),
        256,
    ),
]


def module_of(case: Case) -> nn.Module:
    """The network in training mode, without dropout, which would draw other numbers than ours."""
    module = case.module().train()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module
