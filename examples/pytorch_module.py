"""Train a PyTorch module in half of the memory, and take the result home."""

import torch
from torch import nn

import tvm_xengine as xe

blocks = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(nn.Flatten(), *blocks, nn.Linear(64, 10))
example = torch.rand(256, 1, 8, 8)
step = xe.compile(model, example, loss="cross_entropy", optimizer="adam", budget=0.5)
for _ in range(10):
    images, labels = torch.rand(256, 1, 8, 8), torch.randint(0, 10, (256,))
    loss = step(images, labels)
print(step.report())
step.load_into(model)
print(f"loss {loss:.4f}, predictions {step.eval()(images).argmax(1)[:8].tolist()}")
