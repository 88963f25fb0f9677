"""A small transformer that learns to continue text, trained in 60 % of the memory."""

import copy

import torch
from torch import nn

import tvm_xengine as xe

LENGTH, BATCH, WIDTH, STEPS = 32, 16, 32, 30
TEXT = (
    "A training step takes a batch and the state and gives the loss and the new state. "
    "A plan says where each operator runs and which tensors are kept, recomputed or moved. "
) * 8

torch.manual_seed(0)
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(letter) for letter in TEXT])


class Block(nn.Module):
    """Attention over what came before, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Logits of the next letter at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(letters), WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, len(letters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.letters(x) + self.places)).flatten(0, 1)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of the text, and the letters that follow."""
    starts = torch.randint(0, len(codes) - LENGTH - 1, (BATCH,), generator=torch.manual_seed(seed))
    rows = torch.stack([codes[start : start + LENGTH + 1] for start in starts.tolist()])
    return rows[:, :-1].contiguous(), rows[:, 1:].flatten()


model = Transformer()
twin = copy.deepcopy(model)
step = xe.compile(
    model,
    batch(0)[0],
    loss="cross_entropy",
    optimizer=xe.AdamW(3e-3),
    budget=0.6,
    costs="predicted",
    time_limit_s=20,
)
print(step.report())

optimizer = torch.optim.AdamW(twin.parameters(), lr=3e-3)
worst, first = 0.0, None
for seed in range(STEPS):
    x, y = batch(seed)
    ours = float(step(x, y))
    optimizer.zero_grad()
    theirs = nn.functional.cross_entropy(twin(x), y)
    theirs.backward()
    optimizer.step()
    first = first or ours
    worst = max(worst, abs(ours - theirs.item()))
print(f"loss {first:.3f} to {ours:.3f} in {STEPS} steps")
assert ours < 0.8 * first
assert worst < 1e-3, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}")
