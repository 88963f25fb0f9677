"""How long do features and predictions take? Each test prints its figure and asserts what must hold."""

from __future__ import annotations

import importlib
import time

import numpy as np
import pytest
from tvm import relax

from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.prediction.predict import default_model, predict_costs
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.build import build_training_step

pytestmark = pytest.mark.slow

MOST_PREDICTION_S = 2.0
MOST_FEATURES_MS = 10.0

RESNET = importlib.import_module("tvm_xengine.frontends.zoo.resnet50")
"""The module, which the function in it hides behind its name."""


def kernels_of(forward: ForwardModel) -> tuple[int, list[DeviceKernel]]:
    """The ops of a training step on one device, and its kernels."""
    device = Device("cpu", "llvm -mcpu=native", kernels=("tir",))
    step = lower_step(build_training_step(forward).mod, Platform(devices=(device,)))
    return len(step.extraction.graph.ops), list(step.kernels.values())


def test_features_take_under_ten_milliseconds() -> None:
    times_ms = []
    for kernel in kernels_of(load_model("resnet18", batch_size=8))[1]:
        start_s = time.process_time()
        kernel_features(kernel)
        times_ms.append(1e3 * (time.process_time() - start_s))
    print(f"features: median {np.median(times_ms):.1f} ms, 90 % {np.quantile(times_ms, 0.9):.1f}")
    assert np.median(times_ms) < MOST_FEATURES_MS


@pytest.mark.parametrize("network", ["deep_resnet", "no_two_alike"])
def test_a_thousand_ops_are_predicted_in_two_seconds(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold: reading the model and every feature counts; lowering does not.

    A ResNet repeats its kernels, as most networks do; in the other one no two are alike.
    """
    monkeypatch.setattr(RESNET, "_BLOCKS", (3, 4, 26, 3))
    model = build_network(network, 0, _deep_resnet if network == "deep_resnet" else _no_two_alike)
    ops, kernels = kernels_of(model)
    start_s = time.process_time()
    costs = predict_costs(kernels, default_model())
    spent_s = time.process_time() - start_s
    print(f"{network}: {ops} ops, {len(costs)} different kernels, {spent_s:.2f} s of CPU")
    assert ops >= 1000
    assert spent_s < MOST_PREDICTION_S


def _deep_resnet(layers: Layers) -> relax.Expr:
    return RESNET.resnet50(layers, layers.input("x", (2, 3, 64, 64)), 10)


def _no_two_alike(layers: Layers) -> relax.Expr:
    x: relax.Expr = layers.input("x", (2, 3, 16, 16))
    for k in range(112):
        x = layers.conv(f"conv{k}", x, 8 + k, 3, padding=1, bias=False)
        x = layers.relu(f"relu{k}", layers.batch_norm(f"norm{k}", x))
    return layers.linear("fc", layers.global_avg_pool("mean", x), 10)
