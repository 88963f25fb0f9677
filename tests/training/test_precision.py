"""Mixed precision computes nearly the same gradients, with float32 parameters."""

import numpy as np
import pytest
import torch

from tests.frontends.torch_networks import LeNet
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.precision import MixedPrecision
from tvm_xengine.training.recipe import Recipe


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.2), ("bfloat16", 0.25)])
def test_gradients_are_close_to_those_in_float32(dtype: str, tolerance: float) -> None:
    # PyTorch's own autocast differs from float32 by 0.05 and 0.17 in conv1.weight of this network.
    torch.manual_seed(0)
    module = LeNet(size=16)
    x, labels = torch.randn(4, 1, 16, 16), torch.randint(0, 10, (4,))
    recipe = Recipe(precision=MixedPrecision(dtype, loss_scale=128.0))
    step = build_step_by_recipe(exported(module, x), recipe)
    assert {str(value.dtype) for value in step.initial_state.values()} == {"float32"}
    run = ReferenceRun(step)
    loss = run(x.numpy(), labels.numpy())["loss"]
    expected = torch.nn.functional.cross_entropy(module(x), labels)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=tolerance)
    for name, gradient in run.gradients().items():
        layer, kind = name.split("_")
        wanted = getattr(getattr(module, layer), kind).grad.numpy()
        error = np.linalg.norm(gradient - wanted) / np.linalg.norm(wanted)
        assert 0 < error < tolerance, name
