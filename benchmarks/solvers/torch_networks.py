"""Well-known networks in PyTorch, small enough to read, with the layers of the papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def vgg19() -> nn.Module:
    """VGG-19 for 224 x 224 images (Simonyan and Zisserman 2015), one pooling down to 7 x 7."""
    layers: list[nn.Module] = []
    below = 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(below, width, 3, padding=1), nn.ReLU()]
            below = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *head, nn.Linear(4096, 1000))


def _conv_norm(
    below: int, above: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    conv = nn.Conv2d(below, above, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(above))


class Bottleneck(nn.Module):
    """The block of ResNet-50 (He et al. 2016)."""

    def __init__(self, below: int, width: int, stride: int) -> None:
        super().__init__()
        self.a = _conv_norm(below, width, 1)
        self.b = _conv_norm(width, width, 3, stride)
        self.c = _conv_norm(width, 4 * width, 1)
        is_same = stride == 1 and below == 4 * width
        self.skip = nn.Identity() if is_same else _conv_norm(below, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Three convolutions beside a skip."""
        inner = torch.relu(self.b(torch.relu(self.a(x))))
        return torch.relu(self.c(inner) + self.skip(x))


class BasicBlock(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, below: int, width: int, stride: int) -> None:
        super().__init__()
        self.a = _conv_norm(below, width, 3, stride)
        self.b = _conv_norm(width, width, 3)
        is_same = stride == 1 and below == width
        self.skip = nn.Identity() if is_same else _conv_norm(below, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions beside a skip."""
        return torch.relu(self.b(torch.relu(self.a(x))) + self.skip(x))


def _resnet(block: type[nn.Module], counts: tuple[int, ...], expansion: int) -> nn.Module:
    layers: list[nn.Module] = [_conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(2)]
    below = 64
    for stage, count in enumerate(counts):
        for k in range(count):
            width, stride = 64 << stage, 2 if stage and k == 0 else 1
            layers.append(block(below, width, stride))
            below = expansion * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(below, 1000))


def resnet18() -> nn.Module:
    """ResNet-18 for 224 x 224 images."""
    return _resnet(BasicBlock, (2, 2, 2, 2), 1)


def resnet50() -> nn.Module:
    """ResNet-50 for 224 x 224 images."""
    return _resnet(Bottleneck, (3, 4, 6, 3), 4)


class InvertedResidual(nn.Module):
    """The block of MobileNetV2 (Sandler et al. 2018)."""

    def __init__(self, below: int, above: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = below * expansion
        parts: list[nn.Module] = []
        if expansion != 1:
            parts += [_conv_norm(below, width, 1), nn.ReLU6()]
        parts += [_conv_norm(width, width, 3, stride, groups=width), nn.ReLU6()]
        self.inner = nn.Sequential(*parts, _conv_norm(width, above, 1))
        self.has_skip = stride == 1 and below == above

    def forward(self, x: Tensor) -> Tensor:
        """Widen, filter each channel, narrow."""
        return x + self.inner(x) if self.has_skip else self.inner(x)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 for 224 x 224 images."""
    layers: list[nn.Module] = [_conv_norm(3, 32, 3, 2), nn.ReLU6()]
    below = 32
    stages = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    for expansion, width, count, stride in stages:
        for k in range(count):
            layers.append(InvertedResidual(below, width, stride if k == 0 else 1, expansion))
            below = width
    head = [_conv_norm(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(1280, 1000))


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015), padded, widened by repetition; one class per image."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width << k for k in range(depth + 1)]
        self.down = nn.ModuleList(
            self._twice(below, above) for below, above in zip([3, *widths], widths, strict=False)
        )
        pairs = list(zip(reversed(widths), reversed(widths[:-1]), strict=False))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(a, b, 1)) for a, b in pairs
        )
        self.merge = nn.ModuleList(self._twice(a, b) for a, b in pairs)
        self.head = nn.Conv2d(width, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Down, keeping each level, and up again."""
        levels: list[Tensor] = []
        for k, block in enumerate(self.down):
            x = block(x if k == 0 else torch.max_pool2d(x, 2))
            levels.append(x)
        for up, merge, level in zip(self.up, self.merge, reversed(levels[:-1]), strict=True):
            x = merge(torch.cat((level, up(x)), dim=1))
        return torch.nn.functional.adaptive_avg_pool2d(self.head(x), 1).flatten(1)

    @staticmethod
    def _twice(below: int, above: int) -> nn.Sequential:
        first = nn.Conv2d(below, above, 3, padding=1)
        return nn.Sequential(first, nn.ReLU(), nn.Conv2d(above, above, 3, padding=1), nn.ReLU())


class Attention(nn.Module):
    """Causal self-attention, written out, with a matrix for each of its three inputs."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        """Attend to what came before."""
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        q, k, v = (part(x).reshape(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + self.mask
        mixed = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2)
        return self.out(mixed.reshape(batch, length, width))


class Block(nn.Module):
    """The block of GPT-2 (Radford et al. 2019)."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then feed-forward, each beside a skip."""
        x = x + self.attention(self.norm_a(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm_b(x))))


class GPT(nn.Module):
    """A GPT over given embeddings; predicts the class of the last token."""

    def __init__(self, layers: int, width: int, heads: int, length: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads, length) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, length, width) to (batch * length, classes)."""
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


@dataclass(frozen=True)
class Network:
    """A network and the shape of its input, batch first."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]


NETWORKS: dict[str, Network] = {
    "vgg19": Network(vgg19, (16, 3, 224, 224)),
    "resnet18": Network(resnet18, (32, 3, 224, 224)),
    "resnet50": Network(resnet50, (32, 3, 224, 224)),
    "unet": Network(UNet, (4, 3, 256, 256)),
    "mobilenet_v2": Network(mobilenet_v2, (32, 3, 224, 224)),
    "gpt2_small": Network(lambda: GPT(12, 768, 12, 512, 50257), (4, 512, 768)),
    "gpt48": Network(lambda: GPT(48, 384, 6, 512, 8192), (4, 512, 384)),
}
