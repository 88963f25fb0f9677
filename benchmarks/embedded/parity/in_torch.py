"""The same training in PyTorch, with numbers of any width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

import tvm_xengine as xe
from benchmarks.embedded.parity.networks import Array, Case
from tvm_xengine.training.optimizer import Optimizer

Parameters = Iterable[nn.Parameter]
RATE = 0.05
"""Learning rate of gradient descent, with and without momentum."""
ADAM_RATE = 0.005
OPTIMIZERS: Mapping[str, tuple[Optimizer, Callable[[Parameters], torch.optim.Optimizer]]] = {
    "sgd": (xe.SGD(RATE), lambda p: torch.optim.SGD(p, RATE)),
    "momentum": (
        xe.SGD(RATE, momentum=0.9, weight_decay=1e-3),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=1e-3),
    ),
    "adam": (xe.Adam(ADAM_RATE), lambda p: torch.optim.Adam(p, ADAM_RATE)),
}
_SLOTS = {"momentum_buffer": "velocity", "exp_avg": "first_moment", "exp_avg_sq": "second_moment"}
"""What checkpoints call PyTorch's state of a parameter."""


def run_in_torch(
    case: Case, optimizer: str, batches: Sequence[tuple[Array, Array]], dtype: torch.dtype
) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
    """Losses of all steps, and the state after them by its names in checkpoints."""
    module = case.module().to(dtype)
    update = OPTIMIZERS[optimizer][1](module.parameters())
    losses = []
    for x, target in batches:
        update.zero_grad()
        output = module(_tensor(x, dtype))
        judge = F.mse_loss if case.classes is None else F.cross_entropy
        loss = judge(output, _tensor(target, dtype))
        loss.backward()
        update.step()
        losses.append(loss.item())
    state = {f"model/{name}": value.detach() for name, value in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for slot, value in update.state.get(parameter, {}).items():
            if slot in _SLOTS:
                state[f"optimizer/{name}/{_SLOTS[slot]}"] = value
    return np.array(losses), {name: value.numpy() for name, value in state.items()}


def _tensor(array: Array, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
