"""Modules that PyTorch's exporter to ONNX changes on the way, in ways that must not show."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import onnx
import torch
from torch import nn
from torch.onnx import TrainingMode

from tests.traps.training import Trap

torch.manual_seed(0)
ROWS, IMAGES = torch.randn(6, 4), torch.randn(4, 2, 5, 5)
WORDS = torch.tensor([[1, 2, 6], [0, 3, 3]])


@dataclass(frozen=True)
class Export:
    """A trap and how its module is exported."""

    trap: Trap
    for_training: bool = False
    batch_size: int | None = None

    def model(self) -> onnx.ModelProto:
        inputs = tuple(one[: self.batch_size or len(one)] for one in self.trap.inputs)
        mode = TrainingMode.TRAINING if self.for_training else TrainingMode.EVAL
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                copy.deepcopy(self.trap.module),
                inputs,
                file,
                opset_version=17,
                dynamo=False,
                training=mode,
                do_constant_folding=not self.for_training,
            )
        return onnx.load_from_string(file.getvalue())


class Tied(nn.Module):
    """The same matrix as it is and transposed, which the exporter computes."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.w) @ self.w.t()


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(words)))


class Clones(nn.Module):
    """One layer used twice, and another with equal values."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b, self.c = self.a, copy.deepcopy(self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Heads(nn.Module):
    """Reshapes by numbers that are the batch size and by numbers that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 6), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.layer(x).reshape(x.shape[0], 2, 3).transpose(1, 2)
        return self.head(heads.reshape(x.shape[0], -1, 3))


def _norms(**options: object) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 4),
        nn.BatchNorm1d(4, **options),  # type: ignore[arg-type]
        nn.Tanh(),
        nn.Linear(4, 3),
    )


WITHOUT_SCALES = nn.Sequential(
    nn.Conv2d(2, 4, 3),
    nn.GroupNorm(2, 4),
    nn.Tanh(),
    nn.InstanceNorm2d(4),
    nn.Flatten(),
    nn.LayerNorm(36, elementwise_affine=False),
    nn.Linear(36, 3),
)

MODULES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "a matrix and its transposed": (Tied, ROWS),
    "an embedding and its head": (Language, WORDS),
    "a layer twice and its clone": (Clones, ROWS),
    "norms without scales": (lambda: WITHOUT_SCALES, IMAGES),
    "a batch norm without scale": (lambda: _norms(affine=False), ROWS),
    "a batch norm without statistics": (lambda: _norms(track_running_stats=False), ROWS),
    "a batch norm": (_norms, ROWS),
}


def _traps() -> dict[str, Export]:
    made = {}
    for name, (make, x) in MODULES.items():
        trap = Trap(make(), (x,))
        made[name] = Export(trap)
        made[f"{name}, for training"] = Export(trap, for_training=True)
    made["another batch size"] = Export(Trap(Heads(), (ROWS,)), batch_size=1)
    made["another batch size that others equal"] = Export(Trap(Heads(), (ROWS,)), batch_size=3)
    return made


EXPORTED = _traps()
"""By what the exporter does."""
