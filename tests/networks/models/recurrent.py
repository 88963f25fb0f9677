"""Recurrent networks over a fixed length."""

import torch
from torch import nn


class Recurrent(nn.Module):
    """An LSTM or GRU over (batch, length, features), classified by its last output."""

    def __init__(self, cell: type[nn.RNNBase], features: int, width: int, classes: int) -> None:
        super().__init__()
        self.cell = cell(features, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.cell(x)
        return self.head(outputs[:, -1])
