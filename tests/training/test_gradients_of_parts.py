"""A tensor that is read in parts has one gradient, made of those of the parts."""

import random

import pytest
import torch
from torch import nn
from tvm import relax

from tests.training.autograd import Operator, exported, worst_gradient_error
from tvm_xengine.training.build import build_training_step


def _steps(x):
    """A recurrence over time, which leaves out the first and the last step."""
    state = torch.zeros_like(x[:, 0])
    for t in range(1, x.shape[1] - 1):
        state = torch.tanh(x[:, t] + 0.5 * state)
    return state


def _windows(x):
    return sum(torch.exp(x[:, t : t + 4] * (t + 1) / 9) for t in range(x.shape[1] - 3))


def _two_axes(x):
    return torch.sin(x[:, 1:5]).sum(1) + x[..., 2:3].sum(1) + x[1:, :3].sum((0, 1)) + x.cos().sum(1)


def _repeated(x):
    return x[:, 2:6] * x[:, 2:6] + x[:, 3:7] + x[:, ::2][:, :4] + x[:, 4:]


FUNCTIONS = {f.__name__[1:]: f for f in (_steps, _windows, _two_axes, _repeated)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_pytorch(name):
    torch.manual_seed(0)
    x = torch.randn(3, 8, 5)
    module = Operator(FUNCTIONS[name], x.shape)
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 2e-5


@pytest.mark.parametrize("seed", range(3))
def test_random_parts_of_a_parameter(seed):
    draw = random.Random(seed)
    shape = (4, 6, 5)
    cuts = []
    for _ in range(9):
        axis = draw.randrange(3)
        begin = draw.randrange(shape[axis])
        cuts.append((axis, begin, draw.randint(begin + 1, shape[axis])))

    def function(x):
        terms = [torch.narrow(x, axis, b, e - b) for axis, b, e in cuts]
        return torch.stack([(k + 1) * torch.tanh(part).sum() for k, part in enumerate(terms)])

    torch.manual_seed(seed)
    x = torch.ones(shape)
    module = Operator(function, shape)
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 2e-5


def test_one_kernel_joins_all_steps_of_time():
    module = nn.Sequential(Operator(_steps, (3, 64, 5)))
    step = build_training_step(exported(module, torch.zeros(3, 64, 5)))
    called = []

    def visit(expr):
        if isinstance(expr, relax.Call) and isinstance(expr.args[0], relax.GlobalVar):
            called.append(expr.args[0].name_hint)

    relax.analysis.post_order_visit(step.function, visit)
    assert sum(name.startswith("parts_backward") for name in called) == 1
    assert not any(name.startswith("slice_backward") for name in called)
