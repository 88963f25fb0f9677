"""A network that needs more memory than its device has, beside a second memory."""

import copy
from pathlib import Path

import torch
from torch import nn

import tvm_xengine as xe

BATCH, STEPS = 64, 10

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(10)]
model = nn.Sequential(*layers, nn.Linear(128, 10))
x, y = torch.rand(BATCH, 128), torch.randint(0, 10, (BATCH,))
twin = copy.deepcopy(model)

platform = xe.Platform.load(Path(__file__).parent / "platform.toml")
training = xe.training_step(model, x, loss="cross_entropy", optimizer=xe.SGD(0.1))
lowered = xe.lower(training, platform)
planned = xe.plan(xe.make_problem(lowered, costs="predicted"), time_limit_s=20)
print(planned.report())
assert planned.summary.transfers > 0, "nothing was moved"
step = xe.build(lowered, planned)

optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
worst = 0.0
for _ in range(STEPS):
    ours = float(step(x, y))
    optimizer.zero_grad()
    theirs = nn.functional.cross_entropy(twin(x), y)
    theirs.backward()
    optimizer.step()
    worst = max(worst, abs(ours - theirs.item()))
assert worst < 1e-4, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}")
