"""Eleven small networks in PyTorch, each of other layers, with a batch of random data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Case:
    """A network and what it is trained on.

    Attributes
    ----------
    shape
        Of a batch of inputs.
    symbols
        Inputs are integers below this; None for normal numbers.
    classes
        Of the cross-entropy; None trains the input itself, with the mean squared error.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int | None = 5
    symbols: int | None = None

    @property
    def loss(self) -> str:
        """Its name in `tvm_xengine.training_step`."""
        return "mse" if self.classes is None else "cross_entropy"

    def module(self) -> nn.Module:
        """The network with its seeded parameters."""
        torch.manual_seed(0)
        return self.make()

    def batches(self, count: int) -> list[tuple[Array, Array]]:
        """Seeded inputs with their targets."""
        random = np.random.default_rng(0)
        made: list[tuple[Array, Array]] = []
        for _ in range(count):
            if self.symbols is None:
                x: Array = random.normal(size=self.shape).astype(np.float32)
            else:
                x = random.integers(0, self.symbols, self.shape)
            target = x if self.classes is None else random.integers(0, self.classes, self.shape[0])
            made.append((x, target))
        return made


class Residual(nn.Module):
    """Two convolutions with norms beside a shortcut of one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.two = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.two(F.relu(self.norm1(self.one(x)))))
        return F.relu(y + self.shortcut(x))


class Separable(nn.Module):
    """A depthwise convolution and one by one element, with norms."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3) -> None:
        super().__init__()
        where = {"padding": kernel // 2, "groups": inputs}
        self.depthwise = nn.Conv2d(inputs, inputs, kernel, bias=False, **where)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(self.norm2(self.pointwise(F.relu6(self.norm1(self.depthwise(x))))))


class SqueezeExcite(nn.Module):
    """The block of MobileNetV3: hard activations, and channels weighed by their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 2 * channels, 1)
        self.reduce = nn.Conv2d(2 * channels, channels, 1)
        self.weigh = nn.Conv2d(channels, 2 * channels, 1)
        self.project = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.expand(x))
        weights = F.relu(self.reduce(F.adaptive_avg_pool2d(y, 1)))
        return x + self.project(y * F.hardsigmoid(self.weigh(weights)))


class Attention(nn.Module):
    """A block of a transformer. A bias of the keys would have no gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Recurrent(nn.Module):
    """A cell with two gates over eight steps, written out."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + width, 2 * width)
        self.new = nn.Linear(inputs + width, width)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0, :1]).expand(-1, self.width)
        for step in x.unbind(1):
            reset, keep = torch.sigmoid(self.gates(torch.cat([step, h], 1))).chunk(2, 1)
            new = torch.tanh(self.new(torch.cat([step, reset * h], 1)))
            h = keep * h + (1 - keep) * new
        return h


class MeanOfTokens(nn.Module):
    """An embedding and its mean over the text."""

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(symbols, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x).mean(1)


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))


def _lenet() -> nn.Module:
    first = (nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(4, 8, 5), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(
        *first, *second, nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5)
    )


def _resnet() -> nn.Module:
    blocks = (Residual(3, 8), Residual(8, 8))
    return nn.Sequential(*blocks, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(8, 5))


def _keywords() -> nn.Module:
    first = (nn.Conv2d(1, 8, (10, 4), stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    blocks = (Separable(8, 8), Separable(8, 12))
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


def _mobilenet() -> nn.Module:
    first = (nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Hardswish(), SqueezeExcite(8))
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def _transformer() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), Attention(16), nn.Flatten(), nn.Linear(128, 5))


def _recurrent() -> nn.Module:
    return nn.Sequential(Recurrent(6, 16), nn.Linear(16, 5))


def _autoencoder() -> nn.Module:
    first = (nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.LeakyReLU(0.1))
    second = (nn.Conv2d(6, 4, 3, stride=2, padding=1), nn.Tanh())
    up = (nn.ConvTranspose2d(4, 6, 2, stride=2), nn.Tanh(), nn.ConvTranspose2d(6, 1, 2, stride=2))
    return nn.Sequential(*first, *second, *up)


def _temporal() -> nn.Module:
    one = (nn.Conv1d(4, 8, 3, dilation=2, padding=2, bias=False), nn.GroupNorm(2, 8), nn.SiLU())
    two = (nn.Conv1d(8, 8, 3, dilation=4, padding=4), nn.ELU(), nn.AdaptiveAvgPool1d(1))
    return nn.Sequential(*one, *two, nn.Flatten(), nn.Linear(8, 5))


def _missed_edges() -> nn.Module:
    """No window reaches the last rows and columns: of 20 the convolution, of 9 and 3 the poolings."""
    one = (nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 6, 3, stride=2), nn.Tanh())
    two = (nn.MaxPool2d(3, 3, padding=1), nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(*one, *two, nn.Linear(6, 5))


def _text() -> nn.Module:
    return nn.Sequential(MeanOfTokens(40, 12), nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 5))


CASES: Mapping[str, Case] = {
    "perceptron": Case(_perceptron, (8, 16)),
    "lenet": Case(_lenet, (4, 1, 16, 16)),
    "resnet": Case(_resnet, (4, 3, 12, 12)),
    "keywords": Case(_keywords, (4, 1, 25, 10)),
    "mobilenet": Case(_mobilenet, (4, 3, 12, 12)),
    "transformer": Case(_transformer, (4, 8, 6)),
    "recurrent": Case(_recurrent, (4, 8, 6)),
    "autoencoder": Case(_autoencoder, (4, 1, 12, 12), classes=None),
    "temporal": Case(_temporal, (4, 4, 32)),
    "missed_edges": Case(_missed_edges, (4, 1, 20, 20)),
    "text": Case(_text, (8, 10), symbols=40),
}
