"""The training loop of PyTorch that steps are compared with."""

import torch
from torch import nn
from torch.nn import functional

Batch = tuple[torch.Tensor, torch.Tensor]


def train(module: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> list[float]:
    losses = []
    for x, labels in batches:
        loss = functional.cross_entropy(module(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
