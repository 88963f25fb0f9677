"""Traps about what is a parameter, a buffer or a constant, and about modes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.traps.training import Trap

torch.manual_seed(0)
ROWS = torch.randn(6, 4)
IMAGES = torch.randn(4, 2, 5, 5)


class SharedUnderTwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class TransposedTying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.table(words)) @ self.table.weight.t()


class BufferThatCounts(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.layer(x) / self.count


class UnusedParameter(nn.Module):
    """PyTorch does not decay what has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class OnlyInEvaluation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self.training else self.other(x)


class MultipliedByZero(nn.Module):
    """Its gradient is zero, and not missing, so it is decayed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.nothing = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + 0.0 * self.nothing


class FrozenInGroup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.layer = nn.Linear(4, 4), nn.Linear(4, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.frozen(x)))


class LeafConstant(nn.Module):
    """A tensor that requires a gradient and is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = torch.full((3,), 2.0, requires_grad=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


class NotContiguous(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3).t())
        self.every_other = nn.Parameter(torch.randn(6)[::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight) * self.every_other


class Scalars(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift + self.scale**2


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            z = self.other(x)
        return y * y.detach().sigmoid() + z + self.other.bias.detach()


class Inference(nn.Module):
    """What is computed in inference mode has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    @torch.inference_mode()
    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            factor = self.other(x).sigmoid()
        return self.layer(x) * factor.clone() + self.shift(x).clone()


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.none, self.all = nn.Dropout(0.0), nn.Dropout(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(self.none(x))
        return functional.dropout(y + self.all(y), 0.5, training=False)


class KeptAsleep(nn.Module):
    """`train()` is overridden, so that the dropout and the norm stay in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5))
        self.body[1].running_mean = torch.full((3,), 0.25)

    def train(self, mode: bool = True) -> KeptAsleep:
        super().train(mode)
        self.body[1:].eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class NormTwice(nn.Module):
    """The running statistics follow both calls, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(torch.relu(self.norm(self.conv(x)))))


class NormWithoutStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class WeightNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class SlicedParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.table[0]) @ self.table[-1] + self.table[0].diagonal()


class ForwardHook(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.layer.register_forward_hook(lambda _module, _inputs, y: y * 3)
        self.layer.register_forward_pre_hook(lambda _module, inputs: (inputs[0] - 1,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Queue(nn.Module):
    """A buffer that forward assigns, from a batch whose gradient it does not need."""

    queue: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("queue", torch.randn(12, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        scores = y @ self.queue.clone().t()
        self.queue = torch.cat([y.detach(), self.queue[:6]])
        return scores


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


class Padded(nn.Module):
    """The row of the padding has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.table(words)


WORDS = torch.tensor([[1, 2, 2], [6, 0, 1]])

STATE = {
    "shared under two names": Trap(SharedUnderTwoNames(), (ROWS,)),
    "transposed tying": Trap(TransposedTying(), (WORDS,)),
    "a buffer that counts": Trap(BufferThatCounts(), (ROWS,)),
    "an unused parameter": Trap(UnusedParameter(), (ROWS,)),
    "a branch of evaluation": Trap(OnlyInEvaluation(), (ROWS,)),
    "multiplied by zero": Trap(MultipliedByZero(), (ROWS,)),
    "frozen in a group": Trap(FrozenInGroup(), (ROWS,)),
    "a leaf that is no parameter": Trap(LeafConstant(), (ROWS,)),
    "parameters that are not contiguous": Trap(NotContiguous(), (ROWS,)),
    "scalars": Trap(Scalars(), (ROWS,)),
    "detached": Trap(Detached(), (ROWS,)),
    "inference mode": Trap(Inference(), (ROWS,)),
    "dropouts without chance": Trap(Dropouts(), (ROWS,)),
    "modes kept by train()": Trap(KeptAsleep(), (IMAGES,)),
    "a norm called twice": Trap(NormTwice(), (IMAGES,)),
    "a norm without statistics": Trap(NormWithoutStatistics(), (IMAGES,)),
    "weight norm": Trap(WeightNorm(), (ROWS,)),
    "slices of a parameter": Trap(SlicedParameter(), (ROWS,)),
    "hooks of forward": Trap(ForwardHook(), (ROWS,)),
    "a queue that is assigned": Trap(Queue(), (ROWS,)),
    "an optimizer of the last layer": Trap(
        nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)),
        (ROWS,),
        optimizer=lambda module: torch.optim.SGD(module[2].parameters(), 0.1),
    ),
    "checkpointed": Trap(Checkpointed(), (ROWS,)),
    "padding of an embedding": Trap(Padded(), (WORDS,)),
}
