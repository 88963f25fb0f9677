"""Small PyTorch modules, each with something that users' modules have."""

import torch
from torch import nn


class Convolutional(nn.Module):
    """Batch norms with counters, nested names, and a dropout that is switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.drop = nn.Dropout(0.0)
        self.fc = nn.Linear(4 * 6 * 6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.drop(self.layer1(x)).flatten(1))


class Attention(nn.Module):
    """One transformer block whose head is tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embedding(tokens)).mean(1))


class TwoBranches(nn.Module):
    """Two inputs and a dictionary of outputs, one of them for an auxiliary loss."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 6)
        self.right = nn.Linear(3, 6)
        self.head = nn.Linear(6, 2)
        self.aux = nn.Linear(6, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.left(left) + self.right(right))
        return {"main": self.head(hidden), "aux": self.aux(hidden)}


def perceptron() -> nn.Module:
    """Frozen first layer, unused buffer."""
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 5))
    module[0].requires_grad_(False)
    module.register_buffer("unused", torch.arange(3.0))
    return module


def recurrent() -> nn.Module:
    """A GRU over a short sequence."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 6, batch_first=True)
            self.out = nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.gru(x)[0][:, -1])

    return Recurrent()
