"""A gradient that only an update reads needs no memory."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.passes.small_step import SmallStep
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.passes.fusion.fuse_updates import FuseUpdates
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.training.adam import Adam
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import CrossEntropy
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep


def network(batch: int, size: int = 6) -> ForwardModel:
    """A strided convolution, one on small images with many channels, and a product."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (batch, 3, size, size))
        x = layers.relu("relu1", layers.conv("conv1", x, 5, 3, stride=2, padding=1))
        x = layers.relu("relu2", layers.conv("conv2", x, 16, 3, padding=1))
        return layers.linear("fc", layers.flatten("flat", x), 4)

    return build_network("network", 0, body)


def step(model: ForwardModel, optimizer: Optimizer, norm: float | None = None) -> TrainingStep:
    recipe = Recipe(CrossEntropy(), optimizer, max_gradient_norm=norm)
    training = build_step_by_recipe(model, recipe)
    return replace(training, mod=tvm.transform.Sequential([LowerToKernels()])(training.mod))


def fused(training: TrainingStep) -> TrainingStep:
    return replace(training, mod=tvm.transform.Sequential([FuseUpdates()])(training.mod))


def graph(training: TrainingStep) -> OpGraph:
    return extract_graph(training.mod).graph


def losses(training: TrainingStep, batch: int, size: int) -> tuple[list[float], list[np.ndarray]]:
    executable = host_step(training)
    executable.poison()
    executable.write(training.initial_state)
    random = np.random.default_rng(0)
    found = []
    for _ in range(4):
        given = {
            "x": random.normal(size=(batch, 3, size, size)).astype("float32"),
            "labels": random.integers(0, 4, batch),
            "lr": np.asarray(0.1, "float32"),
        }
        found.append(float(executable.step(given)["loss"]))
    return found, [np.asarray(value) for value in executable.read_state().values()]


@pytest.mark.parametrize(
    ("batch", "size", "optimizer"),
    [
        (1, 6, SGD()),
        (1, 6, SGD(momentum=0.9, nesterov=True, weight_decay=0.01)),
        pytest.param(40, 12, SGD(weight_decay=0.01), marks=pytest.mark.slow),
        pytest.param(1, 6, SGD(weight_decay=0.01), marks=pytest.mark.slow),
        pytest.param(40, 12, SGD(), marks=pytest.mark.slow),
        pytest.param(40, 12, SGD(momentum=0.9, nesterov=True), marks=pytest.mark.slow),
        pytest.param(1, 6, Adam(amsgrad=True, weight_decay=0.01), marks=pytest.mark.slow),
    ],
)
def test_the_step_computes_what_it_did(batch: int, size: int, optimizer: Optimizer) -> None:
    """With 1,440 positions to add up, the sums do not fit the blocks of the packed product."""
    apart = step(network(batch, size), optimizer)
    together = fused(apart)
    assert len(graph(together).ops) < len(graph(apart).ops)
    (loss, state), (other, other_state) = (losses(t, batch, size) for t in (apart, together))
    np.testing.assert_allclose(other, loss, rtol=1e-5)
    for mine, theirs in zip(state, other_state, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", [SGD(), Adam(amsgrad=True)])
def test_no_large_gradient_is_left(optimizer: Optimizer) -> None:
    together = graph(fused(step(network(1), optimizer)))
    names = {t.name for t in together.tensors}
    assert {"conv2_weight_grad", "fc_weight_grad"} & names == set()
    update = next(op for op in together.ops if "conv2_weight" in dict(op.updates).values())
    others = [op for op in together.ops if "conv2_weight" in op.inputs and op is not update]
    order = [op.name for op in together.ops]
    assert len(others) == 2  # the forward convolution and the gradient of its data
    assert all(order.index(op.name) < order.index(update.name) for op in others)


def test_gradients_that_a_norm_reads_stay_apart() -> None:
    training = step(network(1), SGD(), 1.0)
    assert len(graph(fused(training)).ops) == len(graph(training).ops)


def test_what_must_be_kept_longer_weighs_against_the_gradient() -> None:
    """Without a ReLU only the weight gradient reads the data, which is larger than the weight."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.conv("conv1", layers.input("x", (1, 3, 32, 32)), 5, 3)
        return layers.linear("fc", layers.flatten("flat", layers.conv("conv2", x, 5, 3)), 4)

    together = graph(fused(step(build_network("network", 0, body), SGD())))
    names = {tensor.name for tensor in together.tensors}
    assert "conv2_weight_grad" in names
    assert "fc_weight_grad" not in names


def test_a_hand_written_step() -> None:
    """`g` is read by the update alone; both operands are small."""
    after = extract_graph(FuseUpdates()(SmallStep)).graph
    assert [op.name for op in after.ops] == ["h", "both", "y", "w_new"]
    assert dict(after.op["w_new"].updates) == {"w_new": "w"}


def test_a_caller_may_refuse() -> None:
    training = step(network(1), SGD())
    asked: list[int] = []

    def refuse(merged: tvm.tirx.PrimFunc, gradient: tvm.tirx.PrimFunc) -> bool:
        asked.append(len(merged.params) - len(gradient.params))
        return False

    apart = tvm.transform.Sequential([FuseUpdates(is_better=refuse)])(training.mod)
    assert len(extract_graph(apart).graph.ops) == len(graph(training).ops)
    assert asked
    assert set(asked) == {2}  # the parameter and the learning rate
