"""Comparing the gradients of single ops with PyTorch's autograd."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from tvm import relax

from tests.training.running import ReferenceRun
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.relax import from_relax
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe

Operator = Callable[..., relax.Expr]
Reference = Callable[..., torch.Tensor]
Case = tuple[Operator, Reference, Mapping[str, np.ndarray]]


def check_gradients(cases: Mapping[str, Case], *, tolerance: float = 2e-5) -> None:
    """Results and gradients of all float operands are those of the references.

    All cases go into one function, whose result is what they return, flattened and joined.
    """
    model = _joined(cases)
    tensors = {
        case: [torch.from_numpy(value.copy()) for value in operands.values()]
        for case, (_, _, operands) in cases.items()
    }
    for tensor in (tensor for group in tensors.values() for tensor in group):
        tensor.requires_grad_(tensor.is_floating_point())
    expected = torch.cat(
        [reference(*tensors[case]).flatten() for case, (_, reference, _) in cases.items()]
    )
    target = np.random.default_rng(1).standard_normal(len(expected)).astype("float32")
    loss = torch.nn.functional.mse_loss(expected, torch.from_numpy(target), reduction="mean")
    loss.backward()

    recipe = Recipe(loss=MEAN_SQUARED_ERROR, optimizer=SGD(momentum=0.9))
    run = ReferenceRun(build_step_by_recipe(model, recipe))
    found = run(target)["loss"]
    assert abs(found - loss.item()) <= tolerance * max(1, abs(loss.item()))
    gradients = run.gradients()
    wrong = {}
    for case, (_, _, operands) in cases.items():
        for name, tensor in zip(operands, tensors[case], strict=True):
            if tensor.requires_grad:
                wanted = tensor.grad.numpy()
                error = np.abs(gradients[_operand(case, name)] - wanted).max()
                if not error <= tolerance * np.abs(wanted).max():
                    wrong[case, name] = error
    assert not wrong


def _joined(cases: Mapping[str, Case]) -> ForwardModel:
    builder = relax.BlockBuilder()
    values = {
        _operand(case, name): value
        for case, (_, _, operands) in cases.items()
        for name, value in operands.items()
    }
    variables = {
        name: relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        for name, value in values.items()
    }
    with builder.function("main", params=list(variables.values())):
        with builder.dataflow():
            results = []
            for case, (operator, _, operands) in cases.items():
                value = operator(*(variables[_operand(case, name)] for name in operands))
                results.append(relax.op.reshape(builder.emit(value), (-1,)))
            output = builder.emit_output(relax.op.concat(results))
        builder.emit_func_output(output)
    return from_relax(builder.get(), values)


def _operand(case: str, name: str) -> str:
    return identifier(f"{case}_{name}")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.5 and 2."""
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype("float32")
