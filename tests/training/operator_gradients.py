"""Comparing the gradients of single ops with PyTorch's autograd."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from tvm import relax

from tests.training.running import ReferenceRun
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.training.build import Recipe, build_step_by_recipe
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizers import SGD

Operator = Callable[..., relax.Expr]
Reference = Callable[..., torch.Tensor]


def check_gradients(
    operator: Operator,
    reference: Reference,
    operands: Mapping[str, np.ndarray],
    *,
    tolerance: float = 2e-5,
) -> None:
    """The operator's result and the gradients of all float operands are those of the reference."""
    builder = relax.BlockBuilder()
    variables = {
        name: relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in operands.items()
    }
    with builder.function("main", params=list(variables.values())):
        with builder.dataflow():
            output = builder.emit_output(operator(*variables.values()))
        builder.emit_func_output(output)
    model = from_relax(builder.get(), operands)
    tensors = {name: torch.from_numpy(value.copy()) for name, value in operands.items()}
    for tensor in tensors.values():
        tensor.requires_grad_(tensor.is_floating_point())
    expected = reference(*tensors.values())
    target = np.random.default_rng(1).standard_normal(tuple(expected.shape)).astype("float32")
    loss = torch.nn.functional.mse_loss(expected, torch.from_numpy(target))
    loss.backward()

    recipe = Recipe(loss=MEAN_SQUARED_ERROR, optimizer=SGD(momentum=0.9))
    run = ReferenceRun(build_step_by_recipe(model, recipe))
    found = run(target)["loss"]
    assert abs(found - loss.item()) <= tolerance * max(1, abs(loss.item()))
    gradients = run.gradients()
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            wanted = tensor.grad.numpy()
            error = np.abs(gradients[name] - wanted).max()
            assert error <= tolerance * max(np.abs(wanted).max(), 1e-3), (name, error)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.5 and 2."""
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype("float32")
