"""A convolutional network on handwritten digits, trained in three quarters of the memory."""

import copy

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import tvm_xengine as xe

BATCH, EPOCHS = 64, 8

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
order = np.random.default_rng(0).permutation(len(images))
train, test = order[: 25 * BATCH], order[25 * BATCH : 27 * BATCH]

model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
    *(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)),
)
twin = copy.deepcopy(model)
step = xe.compile(
    model,
    images[:BATCH],
    loss="cross_entropy",
    optimizer=xe.SGD(0.05, momentum=0.9),
    budget=0.75,
    costs="predicted",
    time_limit_s=20,
)
print(step.report())

optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
worst = 0.0
for epoch in range(EPOCHS):
    for rows in train.reshape(-1, BATCH):
        ours = float(step(images[rows], labels[rows]))
        optimizer.zero_grad()
        theirs = nn.functional.cross_entropy(twin(images[rows]), labels[rows])
        theirs.backward()
        optimizer.step()
        worst = max(worst, abs(ours - theirs.item()))
    print(f"epoch {epoch}: loss {ours:.4f}, PyTorch {theirs.item():.4f}")

step.load_into(model)
with torch.no_grad():
    right = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
print(f"accuracy on held-out digits: {right:.1%}")
assert right > 0.9
assert worst < 1e-2, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}")
