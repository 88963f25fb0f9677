"""What a model computes twice is computed once, unless each call counts."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.forward.simplify import merge_equal_ops
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizers import SGD


class _Twice(nn.Module):
    """Both calls of a function of the same tensor, after an op with three results."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(6, 12), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.first(x).chunk(3, dim=1)
        return self.function(q) * k + self.function(q) * v


def _ops(module: nn.Module) -> list[str]:
    model = exported(module.train(), torch.zeros(5, 6))
    return [op.op for op in merge_equal_ops(read_forward_ops(model.main)).ops]


def test_equal_ops_are_merged_and_others_are_not() -> None:
    ops = _ops(_Twice(torch.sigmoid))
    assert ops.count("relax.sigmoid") == 1
    assert ops.count("relax.strided_slice") == 3
    assert ops.count("relax.multiply") == 2


class _Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) * x.sum(1, keepdim=True) + x.clamp(0.0, 1.0) - x.clamp(0.0, 2.0)


def test_the_same_operator_with_other_attributes_is_another_op() -> None:
    ops = _ops(_Sums())
    assert ops.count("relax.sum") == 2
    assert ops.count("tvm_xengine.clamp") == 2


def test_dropout_draws_anew_in_each_call() -> None:
    assert _ops(_Twice(nn.Dropout(0.5))).count("relax.nn.dropout") == 2


@pytest.mark.parametrize(
    "function", [torch.sigmoid, nn.BatchNorm1d(4), nn.Linear(4, 4), nn.functional.gelu]
)
def test_the_step_is_that_of_pytorch(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(2)
    module = _Twice(function).train()
    x, target = torch.randn(5, 6), torch.randn(5, 4)
    model = exported(module, x)
    run = ReferenceRun(build_training_step(model, loss=MEAN_SQUARED_ERROR, optimizer=SGD(0.1)))
    loss = run(x.numpy(), target.numpy())["loss"]
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    expected = nn.functional.mse_loss(module(x), target)
    expected.backward()
    optimizer.step()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    trained = {name.replace(".", "_"): value for name, value in module.state_dict().items()}
    compared = [name for name in run.state if name in trained]
    assert len(compared) >= 2
    for name in compared:
        np.testing.assert_allclose(run.state[name], trained[name], rtol=1e-4, atol=1e-6)
