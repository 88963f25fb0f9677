"""Tensors stored as float16, computed with as float32."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.passes.small_step import SmallStep
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.store_short import StoreShort
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.step import TrainingStep


def two_layers() -> ForwardModel:
    """y = tanh(x a^T) b^T."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.linear("a", layers.input("x", (8, 16)), 16)
        return layers.linear("b", layers.emit("t", relax.op.tanh(x)), 4)

    return build_network("two_layers", 0, body)


def lowered(optimizer: Optimizer) -> TrainingStep:
    training = build_training_step(two_layers(), loss=MEAN_SQUARED_ERROR, optimizer=optimizer)
    return replace(training, mod=tvm.transform.Sequential([LowerToKernels()])(training.mod))


def stored_short(training: TrainingStep, names: list[str], least_bytes: int) -> TrainingStep:
    short = StoreShort("train_step", parameters=names, least_bytes=least_bytes)
    mod = tvm.transform.Sequential([short])(training.mod)
    state = {
        name: value.astype(np.float16) if name in names else value
        for name, value in training.initial_state.items()
    }
    return replace(training, mod=mod, initial_state=state)


def dtypes(training: TrainingStep) -> dict[str, str]:
    return {tensor.name: tensor.dtype for tensor in extract_graph(training.mod).graph.tensors}


def one_step(training: TrainingStep) -> tuple[float, dict[str, np.ndarray]]:
    executable = host_step(training)
    executable.poison()
    executable.write(training.initial_state)
    random = np.random.default_rng(0)
    batch = {
        "x": random.normal(size=(8, 16)).astype("float32"),
        "labels": random.normal(size=(8, 4)).astype("float32"),
        "lr": np.asarray(0.1, "float32"),
    }
    loss = float(executable.step(batch)["loss"])
    return loss, {name: np.asarray(v) for name, v in executable.read_state().items()}


def test_forward_tensors_are_rounded_once_where_they_are_stored() -> None:
    """The one tensor that is kept is tanh(x a^T); numpy rounds it in the same place."""
    training = lowered(SGD())
    after = stored_short(training, [], 256)
    kept = [name for name, dtype in dtypes(after).items() if dtype == "float16"]
    assert kept == ["linear_add_tir_tanh"]
    random = np.random.default_rng(0)
    x = random.normal(size=(8, 16)).astype("float32")
    labels = random.normal(size=(8, 4)).astype("float32")
    state = training.initial_state
    hidden = np.tanh(x @ state["a_weight"].T + state["a_bias"]).astype(np.float16)
    output = hidden.astype("float32") @ state["b_weight"].T + state["b_bias"]
    loss, _ = one_step(after)
    assert loss == pytest.approx(np.mean((output - labels) ** 2), rel=1e-6)
    exact, _ = one_step(training)
    assert 0 < abs(loss - exact) < 1e-3 * exact


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9)])
def test_a_short_parameter_is_still_written_over(optimizer: Optimizer) -> None:
    training = lowered(optimizer)
    after = stored_short(training, ["a_weight"], 10**6)
    graph = extract_graph(after.mod).graph
    assert graph.tensor["a_weight"].dtype == "float16"
    assert "a_weight" in [state for op in graph.ops for _, state in op.updates]
    _, state = one_step(after)
    _, exact = one_step(training)
    assert state["a_weight"].dtype == np.float16
    for name, value in exact.items():
        np.testing.assert_allclose(state[name], value, rtol=5e-3, atol=1e-3)
    assert (state["a_weight"] != after.initial_state["a_weight"]).mean() > 0.9


def test_small_tensors_stay() -> None:
    after = stored_short(lowered(SGD()), [], 4 * 8 * 16 + 1)
    assert "float16" not in dtypes(after).values()


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(UnsupportedModuleError, match=r"no parameters \['v'\].*x, lr, w"):
        StoreShort("train_step", parameters=["v"])(SmallStep)
