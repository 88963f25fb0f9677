"""An autoencoder with two outputs and a loss written in PyTorch."""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import tvm_xengine as xe

BATCH, STEPS = 128, 40

torch.manual_seed(0)
images = torch.tensor(load_digits().data / 16, dtype=torch.float32)


class Autoencoder(nn.Module):
    """A picture again, and the code that it went through."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
        self.decode = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 64), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        code = self.encode(x)
        return self.decode(code), code


def loss(outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """The error of the picture, and a small price for large codes."""
    picture, code = outputs
    return nn.functional.mse_loss(picture, target) + 1e-3 * code.square().mean()


model = Autoencoder()
twin = copy.deepcopy(model)
step = xe.compile(
    model,
    images[:BATCH],
    loss=loss,
    example_targets=images[:BATCH],
    optimizer=xe.Adam(1e-2),
    budget=0.6,
    costs="predicted",
    time_limit_s=20,
)
print(step.report())

optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2)
worst, first = 0.0, None
for number in range(STEPS):
    x = images[torch.randint(0, len(images), (BATCH,), generator=torch.manual_seed(number))]
    ours = float(step(x, x))
    optimizer.zero_grad()
    theirs = loss(twin(x), x)
    theirs.backward()
    optimizer.step()
    first = first or ours
    worst = max(worst, abs(ours - theirs.item()))
print(f"loss {first:.4f} to {ours:.4f} in {STEPS} steps")
assert ours < 0.7 * first
assert worst < 1e-4, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}")
