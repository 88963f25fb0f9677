"""Train a PyTorch module in half of the memory, and take the result home."""

import torch
from torch import nn

import tvm_xengine as xe

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
step = xe.compile(
    model, torch.randn(16, 1, 8, 8), loss="cross_entropy", optimizer="adam", budget=0.5
)
for _ in range(10):
    images, labels = torch.rand(16, 1, 8, 8), torch.randint(0, 10, (16,))
    loss = step(images, labels)
print(step.report())
step.load_into(model)
print(f"loss {loss:.4f}, predictions {step.eval()(images).argmax(1).tolist()}")
