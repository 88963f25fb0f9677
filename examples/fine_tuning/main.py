"""The last layers of a network are trained; the others are frozen and keep no gradients."""

import copy

import torch
from torch import nn

import tvm_xengine as xe

BATCH, STEPS = 32, 20


class Network(nn.Module):
    """A backbone as if it had been trained elsewhere, and a head for a new task."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 64, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


torch.manual_seed(0)
model = Network()
images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(0, 4, (BATCH,))
frozen, whole = (
    xe.estimate(model, images, loss="cross_entropy", optimizer="adam", train=train)
    for train in (["head.*"], None)
)
print(f"keeping all tensors: {frozen.keep_all_bytes} bytes, with all layers {whole.keep_all_bytes}")
assert frozen.keep_all_bytes < whole.keep_all_bytes

for parameter in model.backbone.parameters():
    parameter.requires_grad_(False)
twin = copy.deepcopy(model)
step = xe.compile(
    model,
    images,
    loss="cross_entropy",
    optimizer=xe.Adam(1e-3),
    budget=0.8,
    costs="predicted",
    time_limit_s=20,
)
print(step.report())

optimizer = torch.optim.Adam([p for p in twin.parameters() if p.requires_grad], lr=1e-3)
worst = 0.0
for _ in range(STEPS):
    ours = float(step(images, labels))
    optimizer.zero_grad()
    theirs = nn.functional.cross_entropy(twin(images), labels)
    theirs.backward()
    optimizer.step()
    worst = max(worst, abs(ours - theirs.item()))
before = model.backbone[0].weight.clone()
step.load_into(model)
assert torch.equal(before, model.backbone[0].weight), "a frozen layer was trained"
assert worst < 1e-3, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}, frozen layers unchanged")
