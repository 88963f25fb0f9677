"""Train a PyTorch module in half of the memory, and take the result home."""

import torch
from torch import nn

import tvm_xengine as xe

blocks = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(nn.Flatten(), *blocks, nn.Linear(64, 10))
images, labels = torch.rand(256, 1, 8, 8), torch.randint(0, 10, (256,))
step = xe.compile(model, images, loss="cross_entropy", optimizer="adam", budget=0.5)
losses = [float(step(images, labels)) for _ in range(10)]
print(step.report())
print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
step.load_into(model)  # the trained weights, by PyTorch's own names
