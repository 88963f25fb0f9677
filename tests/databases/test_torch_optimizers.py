"""PyTorch's own database of optimizers judges ours: every option that they share."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.common_optimizers import optim_db

import tvm_xengine as xe
from tests.training.running import ReferenceRun
from tvm_xengine.model.torch_optimizer import COUNTERPARTS

OFFERED = tuple(COUNTERPARTS)
FAST = {("SGD", "dampening"), ("Adam", "amsgrad"), ("Adagrad", "lr_decay")}
FAST |= {("NAdam", "non-zero momentum_decay"), ("RAdam", "default"), ("Adadelta", "rho")}


def samples() -> Iterator[object]:
    for info in optim_db:
        kind = info.optim_cls.__name__
        if kind in OFFERED:
            for sample in info.optim_inputs_func(device="cpu"):
                marks = () if (kind, sample.desc) in FAST else pytest.mark.slow
                yield pytest.param(
                    info.optim_cls, sample.kwargs, id=f"{kind}: {sample.desc}", marks=marks
                )


@pytest.mark.parametrize(("kind", "options"), samples())
def test_six_steps_equal_those_of_pytorch(
    kind: type[torch.optim.Optimizer], options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = kind(module.parameters(), **options)
    x, labels = torch.randn(6, 4, 4), torch.randint(0, 3, (6, 4))
    training = xe.training_step(module, x[0], loss="cross_entropy", optimizer=optimizer)
    run = ReferenceRun(training.step)
    for inputs, targets in zip(x, labels, strict=True):
        loss = nn.functional.cross_entropy(module(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = run(inputs.numpy(), targets.numpy(), lr=training.recipe.optimizer.lr)["loss"]
        assert found == pytest.approx(loss.item(), rel=1e-5)
    expected = module.state_dict()
    for role in training.roles:
        np.testing.assert_allclose(
            run.state[role.variable], expected[role.name].numpy(), rtol=2e-6, atol=2e-7
        )
