"""The networks that other projects were measured with, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Peer:
    """A network and a batch for it.

    Attributes
    ----------
    classes
        Of the cross-entropy; None trains the input itself, with the mean squared error.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int | None

    @property
    def loss(self) -> str:
        """Its name in `tvm_xengine.training_step`."""
        return "mse" if self.classes is None else "cross_entropy"

    def batch(self) -> tuple[Array, Array]:
        """A seeded input and its target."""
        random = np.random.default_rng(0)
        x: Array = random.normal(size=self.shape).astype(np.float32)
        return x, x if self.classes is None else random.integers(0, self.classes, self.shape[0])


class Attention(nn.Module):
    """One head of attention with residual, norm and classifier."""

    def __init__(self, length: int = 8, width: int = 16) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(length * width, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) * x.shape[-1] ** -0.5
        mixed = torch.softmax(scores, -1) @ self.value(x)
        return self.fc(torch.tanh(self.norm(x + self.out(mixed))).flatten(1))


def perceptron(*widths: int) -> nn.Module:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _lenet() -> nn.Module:
    first = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*first, *second, *perceptron(400, 120, 84, 10))


PEERS: Mapping[str, Peer] = {
    "perceptron 16-12-4": Peer(lambda: perceptron(16, 12, 4), (2, 16), 4),
    "perceptron 16-32-10": Peer(lambda: perceptron(16, 32, 10), (8, 16), 10),
    "LeNet": Peer(_lenet, (2, 1, 28, 28), 10),
    "attention": Peer(Attention, (2, 8, 16), 5),
    "Deep-AE": Peer(
        lambda: perceptron(640, *(128,) * 4, 8, *(128,) * 4, 640), (1, 640), classes=None
    ),
}
"""Deep-AE is MLPerf Tiny's detector of anomalies, its norms folded."""
