"""Traps about types, NaN, indices and views."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tests.traps.training import Trap

torch.manual_seed(0)
ROWS = torch.randn(6, 4)
CODES = torch.tensor([[-7, -4, -1, 0], [1, 2, 5, 9]])

Function = Callable[..., torch.Tensor]


class OfWeight(nn.Module):
    """A function of a parameter and of the inputs."""

    def __init__(self, function: Function, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape or (6, 4)))
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight, *inputs)


def _written_through_views(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * x
    y[:, 0] += 1
    y.view(-1)[::2].mul_(2)
    y.t()[1].fill_(0.5)
    y[1:3, 2:].copy_(x[1:3, 2:])
    y[y > 1.5] = -1.0
    y.narrow(1, 0, 2).add_(y.narrow(1, 2, 2))
    return y


def _written_after_it_was_read(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w + x
    before = y.clone()
    view = y[0]
    y.mul_(3)
    return before + y + view


def _written_input(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[::2] = w[::2]
    return y * 2


def _whole_row_masked(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    visible = torch.tril(torch.ones(6, 6, dtype=torch.bool), -1)
    scores = (w @ x.t()).masked_fill(~visible, float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, 1)) @ x + w


def _attention_of_nothing(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    visible = torch.tril(torch.ones(6, 6, dtype=torch.bool), -1)
    made = functional.scaled_dot_product_attention(w[None], x[None], w[None], visible[None])
    return made[0]


def _sum_of_masks(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    both = (x > 0) & (w > 0)
    either = (x > 0) + (w > 0)
    count = both.sum() + either.sum(1, keepdim=True) - (both ^ either).to(torch.uint8).sum()
    return w * count * (x > 0) / (1 + True)


def _negative_divisions(w: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    down = codes // 3
    cut = torch.div(codes, 3, rounding_mode="trunc")
    rest, other = codes % 3, torch.fmod(codes, 3)
    wide = codes / 4
    return (
        w[rest] * down[..., None]
        + w[-1 - rest] * cut[..., None]
        + other[..., None] * wide[..., None]
    )


def _overflow(w: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    hashed = codes * 6364136223846793005 + 1442695040888963407
    short = codes.to(torch.int8) * 100
    return w[hashed % 6] * short[..., None] + w[(hashed >> 33) & 3]


def _bits(w: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    return w[(codes ^ 5) & 3] * (~codes)[..., None] + w[(codes << 2) % 6] * (codes >> 1)[..., None]


def _promoted(w: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    half = torch.arange(4) * 0.5
    mean = codes.to(torch.float64).mean() * w.sum(dtype=torch.float64)
    return (w[:2] * half * 3 + codes / 2 + torch.tensor(2, dtype=torch.float64)) * mean.float()


def _written_twice(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    at = torch.tensor([0, 2, 2, 5, 0])
    summed = x.index_put((at,), w[:5], accumulate=True)
    return (
        summed + torch.zeros_like(x).index_add(0, at, w[1:], alpha=2) + w[at, :][[0, 1, 1, 4, 3, 0]]
    )


def _from_behind(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    at = torch.tensor([-1, -6, 2])
    return w[at] + w[..., -1:][:3] + x[at, -2:].sum() + w.flip(0)[-3:] + w.roll(-1, 0)[:3]


def _places(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    values, at = torch.sort(w * x, dim=1, descending=True, stable=True)
    spread = torch.zeros_like(w).scatter(1, at, values)
    return spread + w.gather(1, at) + torch.take_along_dim(x, w.argmax(1, keepdim=True), 1)


def _nothing(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    empty = w[:0]
    return (
        torch.cat([empty, w * x, x[3:3]])
        + empty.sum()
        + torch.zeros(0).prod()
        + w[:, 4:].sum(1, True)
    )


def _strides_of_nothing(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide = w[:1].expand(6, 4)
    return wide * x + wide.t().reshape(6, 4) + x[:, :1].expand(-1, 4).contiguous() * w


def _block_diagonal(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    # Behind an empty block PyTorch's own gradient is wrong.
    return torch.block_diag(w[:3, :2], w[3:, 2:], torch.tensor([])) + x[:1, :1]


def _straight_through(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (w + (torch.round(w * 4) / 4 - w).detach()) * x


def _detached_in_place(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * x
    z = y * 1
    before = z * 2
    z.detach_()
    z.add_(w)
    return y + z * w + before


NUMBERS = {
    "detached in place": Trap(OfWeight(_detached_in_place), (ROWS,)),
    "views that are written": Trap(OfWeight(_written_through_views), (ROWS,)),
    "written after it was read": Trap(OfWeight(_written_after_it_was_read), (ROWS,)),
    "a copy of the input that is written": Trap(OfWeight(_written_input), (ROWS,)),
    "a row that is masked as a whole": Trap(OfWeight(_whole_row_masked), (ROWS,)),
    "attention to nothing": Trap(OfWeight(_attention_of_nothing), (ROWS,)),
    "sums of masks": Trap(OfWeight(_sum_of_masks), (ROWS,)),
    "divisions of negative numbers": Trap(OfWeight(_negative_divisions), (CODES,)),
    "overflow": Trap(OfWeight(_overflow), (CODES,)),
    "bits": Trap(OfWeight(_bits), (CODES,)),
    "promotion": Trap(OfWeight(_promoted), (CODES,)),
    "places that are written twice": Trap(OfWeight(_written_twice), (ROWS,)),
    "places from behind": Trap(OfWeight(_from_behind), (ROWS,)),
    "sorted places": Trap(OfWeight(_places), (ROWS,)),
    "empty tensors": Trap(OfWeight(_nothing), (ROWS,)),
    "strides of zero": Trap(OfWeight(_strides_of_nothing), (ROWS[:1].expand(6, 4),)),
    "blocks beside nothing": Trap(OfWeight(_block_diagonal), (ROWS,)),
    "straight-through rounding": Trap(OfWeight(_straight_through), (ROWS,)),
    "NaN in the branch not taken": Trap(
        OfWeight(lambda w, x: torch.where(w > 0, torch.sqrt(w), 0.0) * x), (ROWS,)
    ),
    "division by zero in the branch not taken": Trap(
        OfWeight(lambda w, x: torch.where(x > 0, w / x.clamp(min=0), w)), (ROWS,)
    ),
    "a maximum of equal ones": Trap(
        OfWeight(
            lambda w, x: (w - w.relu()).amax(1) + torch.maximum(w.relu(), w.relu() * x.relu()).max()
        ),
        (ROWS,),
    ),
    "clamped at its bounds": Trap(
        OfWeight(lambda w, x: w.clamp(-0.5, 0.5) + functional.relu6(w * 0) + w.abs() + x), (ROWS,)
    ),
    "distances to itself": Trap(
        OfWeight(lambda w, x: torch.cdist(w, w).sum() + torch.cdist(w[:2].repeat(20, 1), x).mean()),
        (ROWS,),
    ),
    "a norm of zero": Trap(
        OfWeight(lambda w, x: functional.normalize(w * (x > 9)) + (w - w.detach()).norm() + x),
        (ROWS,),
    ),
    "a variance of one": Trap(
        OfWeight(lambda w, x: w.std(0) + torch.var(w[:2] * x[:2], 1, unbiased=False).sum()), (ROWS,)
    ),
    "float64 inside": Trap(
        OfWeight(lambda w, x: (w.double().exp() * x).float() + w.half().float()), (ROWS,)
    ),
    "a product of zeros": Trap(
        OfWeight(lambda w, x: torch.prod(w * (x > 0), 1) + torch.cumprod(w * (x > -1), 0).sum(1)),
        (ROWS,),
    ),
}

LABELS = torch.tensor([0, 2, 1, 1, 3, 0])


def _classified(**options: object) -> Function:
    return lambda y, labels: functional.cross_entropy(y, labels, **options)  # type: ignore[arg-type]


LOSSES = {
    "labels as numbers of the loss": Trap(
        OfWeight(lambda w, x: w * x), (ROWS,), LABELS, lambda y, labels: (y.sum(1) * labels).mean()
    ),
    "all labels ignored": Trap(
        OfWeight(lambda w, x: w * x), (ROWS,), torch.full((6,), -100), _classified()
    ),
    "one label ignored": Trap(
        OfWeight(lambda w, x: w * x),
        (ROWS,),
        LABELS,
        _classified(ignore_index=1, label_smoothing=0.1),
    ),
    "weights of classes": Trap(
        OfWeight(lambda w, x: w * x),
        (ROWS,),
        LABELS,
        _classified(weight=torch.tensor([0.0, 1.0, 2.0, 0.5]), reduction="sum"),
    ),
    "a loss with a detached target": Trap(
        OfWeight(lambda w, x: w * x),
        (ROWS,),
        loss=lambda y, t: ((y - (y.detach() + t) / 2) ** 2).mean(),
    ),
}
