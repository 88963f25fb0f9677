"""What is known about a network of the table before it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from tvm_xengine.frontends.model import ForwardModel


@dataclass(frozen=True)
class Setting:
    """Batch size, and height and width of the images or length of the sequence (None: the usual)."""

    batch: int
    size: int | None


Pair = tuple[int, "int | None"]
"""The batch size and the size of a `Setting`."""


@dataclass(frozen=True)
class Subject:
    """A network as we train it and as PyTorch does, in one precision.

    Attributes
    ----------
    parameters
        The leaves that PyTorch differentiates, by the names of the model.
    forward
        PyTorch's function of one batch.
    """

    model: ForwardModel
    parameters: Mapping[str, torch.Tensor]
    forward: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes
    ----------
    source
        Where it comes from, for the reader of the table.
    published
        The model at full size, in float32, dropout included.
    subject
        The network without dropout at a setting, in float32 or float64.
    full, checked
        At which setting it is counted, and at which it is compared.
    vocabulary
        How many different tokens it reads; None for networks that read numbers.
    is_imported_twice
        Whether PyTorch's function is our own reading of a file, so that it cannot be the only judge.
    """

    name: str
    source: str
    published: Callable[[Setting], ForwardModel]
    subject: Callable[[Setting, torch.dtype], Subject]
    full: Setting
    checked: Setting
    vocabulary: int | None = None
    is_imported_twice: bool = False
