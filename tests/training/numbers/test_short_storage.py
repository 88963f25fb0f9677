"""Training with float16 and bfloat16 storage."""

import numpy as np
import pytest

from tests.aot.examples import attention, tiny_mlp
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.compiler.lean.short_storage import (
    ShortStorage,
    short_parameters,
    with_short_storage,
)
from tvm_xengine.training.adam import Adam
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.step import TrainingStep


def losses(training: TrainingStep, steps: int) -> np.ndarray:
    executable = host_step(training)
    executable.poison()
    executable.write(training.initial_state)
    random = np.random.default_rng(0)
    shape = [int(extent) for extent in training.function.params[0].ty.shape]
    batch = {
        "x": random.normal(size=shape).astype("float32"),
        "labels": random.integers(0, 4, shape[0]),
        "lr": np.asarray(0.01, "float32"),
    }
    return np.array([float(executable.step(batch)["loss"]) for _ in range(steps)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "parameters"),
    [
        ("float16", False),
        ("float16", True),
        ("bfloat16", True),
    ],
)
def test_a_network_learns_as_it_does_in_float32(dtype: str, parameters: bool) -> None:
    training = build_training_step(attention(4), optimizer=Adam())
    storage = ShortStorage(parameters=parameters, dtype=dtype)
    exact, rounded = losses(training, 12), losses(with_short_storage(training, storage), 12)
    assert exact[-1] < 0.8 * exact[0]
    np.testing.assert_allclose(rounded, exact, rtol=2e-2 if dtype == "float16" else 5e-2)
    assert (rounded != exact).any()


def test_only_large_trained_parameters_are_short() -> None:
    training = build_training_step(
        tiny_mlp(), optimizer=SGD(), trainable=["fc1_weight", "fc1_bias"]
    )
    storage = ShortStorage(parameters=True, least_bytes=256)
    assert short_parameters(training, storage) == ("fc1_weight",)
    assert short_parameters(training, ShortStorage()) == ()
    after = with_short_storage(training, storage)
    types = {name: str(value.dtype) for name, value in after.initial_state.items()}
    assert types["fc1_weight"] == "float16"
    assert {types[name] for name in types if name != "fc1_weight"} == {"float32"}
