"""A residual may be added to a batch norm in one kernel, or by an op of its own."""

import numpy as np
import pytest
from tvm import relax

from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep


def block() -> ForwardModel:
    def body(layers: Layers) -> relax.Expr:
        x = layers.conv("conv1", layers.input("x", (2, 3, 8, 8)), 4, 3, padding=1)
        y = layers.batch_norm("bn", layers.conv("conv2", x, 4, 3, padding=1))
        x = layers.relu("relu", layers.add("add", x, y))
        return layers.linear("fc", layers.flatten("flat", x), 3)

    return build_network("block", 0, body)


def step(residuals_apart: bool) -> TrainingStep:
    recipe = Recipe(optimizer=SGD(), residuals_apart=residuals_apart)
    return build_step_by_recipe(block(), recipe)


def most_operands(training: TrainingStep) -> int:
    """How many tensors of an image's size one op touches."""
    graph = extract_graph(LowerToKernels()(training.mod)).graph
    image_bytes = graph.tensor["x"].size_bytes
    return max(
        sum(graph.tensor[t].size_bytes >= image_bytes for t in (*op.inputs, *op.outputs))
        for op in graph.ops
    )


@pytest.mark.slow
def test_both_compute_the_same_step() -> None:
    random = np.random.default_rng(0)
    batch = {
        "x": random.normal(size=(2, 3, 8, 8)).astype("float32"),
        "labels": random.integers(0, 3, 2),
        "lr": np.asarray(0.1, "float32"),
    }
    states = []
    for training in (step(False), step(True)):
        executable = host_step(training)
        executable.poison()
        executable.write(training.initial_state)
        losses = [float(executable.step(batch)["loss"]) for _ in range(3)]
        states.append((losses, executable.read_state()))
    (losses, state), (others, other) = states
    assert others == pytest.approx(losses, rel=1e-5)
    for name, value in state.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-4, atol=1e-6)


def test_apart_no_gradient_holds_five_large_tensors() -> None:
    assert most_operands(step(False)) == 5
    assert most_operands(step(True)) == 3
