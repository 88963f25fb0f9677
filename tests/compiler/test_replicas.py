"""Replicas compute what one device computes on the whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.compiler.replicas import replicas_of
from tvm_xengine.errors import InvalidPlatformError, UnsupportedModelError
from tvm_xengine.scheduling.platform import Device, Link, Platform

BATCH = 8


def platform(count: int = 2, budgets: Mapping[str, int] | None = None) -> Platform:
    names = [f"d{k}" for k in range(count)]
    devices = tuple(
        Device(name, "llvm -mcpu=native -num-cores=1", (budgets or {}).get(name, 1 << 29), ("tir",))
        for name in names
    )
    links = tuple(Link(a, b, 20.0, 3.0) for a in names for b in names if a != b)
    return Platform(devices, links)


def kernels_of(made: xe.StepPlan) -> set[str]:
    """The kernels that the ops of a plan call."""
    return set(made.planned.lowered.extraction.kernels.values())


def batch_of(step: xe.Step, seed: int) -> dict[str, np.ndarray]:
    random, given = np.random.default_rng(seed), step.executable.interface.given
    ranges = step.executable.interface.ranges
    return {
        name: random.standard_normal(given[name].shape).astype(given[name].dtype)
        if "float" in given[name].dtype
        else random.integers(0, ranges[name].high, given[name].shape)
        for name in step.batch_names
    }


def test_shares_train_as_pytorch_does_on_the_whole_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    x, y = torch.randn(BATCH, 4), torch.randint(0, 3, (BATCH,))
    training = xe.training_step(module, x, loss="cross_entropy", optimizer=xe.SGD(0.1))
    lowered = xe.lower(training, platform())
    problem = xe.make_problem(lowered, costs="roofline")
    made = xe.plan(problem, replicas={"d0": 5, "d1": 3}, work_limit=1.0)
    made.save(tmp_path / "plan.json")
    step = xe.build(lowered, xe.StepPlan.load(tmp_path / "plan.json", lowered))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-5)
    state = step.state_dict()
    for name, value in module.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-4, atol=1e-6)
    homes = made.plan.problem.home
    for k, device in enumerate(("d0", "d1"), 1):
        assert {homes[name] for name in homes if name.endswith(f"_{k}of2")} == {device}
    assert "d0 5, d1 3 samples" in made.report()
    # Latency is all that such small gradients cost, so they travel together, and so do parameters.
    assert "gradients in buckets of" in made.report()
    assert {"pack", "unpack"} <= {k.partition("_")[0] for k in kernels_of(made)}
    assert made.plan.is_overlapped


def test_replicas_that_cannot_be_are_refused() -> None:
    for given in (1, "all", {"d0": 8}, {"d0": 8, "d1": 0}):
        with pytest.raises(ValueError, match="replicas"):
            replicas_of(given)
    lowered = xe.lower(xe.training_step("mlp", batch_size=2), platform())
    problem = xe.make_problem(lowered, costs="roofline")
    with pytest.raises(InvalidPlatformError, match="3 replicas need"):
        xe.plan(problem, replicas=3)
    with pytest.raises(InvalidPlatformError, match="replicas name gpu"):
        xe.plan(problem, replicas={"d0": 1, "gpu": 1})
    with pytest.raises(UnsupportedModelError, match="5 samples, and the batch has 2"):
        xe.plan(problem, replicas={"d0": 4, "d1": 1})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "replicas", "budgets"),
    [
        ("lenet", {"optimizer": "adam"}, 3, {"d0": 600_000, "d1": 400_000}),
        ("resnet8", {}, {"d0": 5, "d1": 3}, {}),
        ("gpt_nano", {"size": 8}, 2, {}),
    ],
)
def test_networks_in_shares_train_as_one_device_does(
    model: str, options: dict[str, object], replicas: object, budgets: dict[str, int]
) -> None:
    count = replicas if isinstance(replicas, int) else 2
    training = xe.training_step(model, batch_size=BATCH, **options)
    lowered = xe.lower(training, platform(count, budgets))
    problem = xe.make_problem(lowered, costs="roofline")
    step = xe.build(lowered, xe.plan(problem, replicas=replicas, time_limit_s=4.0))
    alone = xe.compile(model, batch_size=BATCH, costs="roofline", solver="keep-all", **options)
    before = alone.state_dict()
    for seed in range(2):
        batch = batch_of(alone, seed)
        assert float(step(batch)) == pytest.approx(float(alone(batch)), rel=1e-5)
    mine, other = step.state_dict(), alone.state_dict()
    change = sum(float(np.square(other[n] - before[n], dtype="f8").sum()) for n in other)
    differ = sum(float(np.square(other[n] - mine[n], dtype="f8").sum()) for n in other)
    assert differ < 1e-6 * change
    for device, size in step.executable.measured_peak_bytes.items():
        assert size == step.plan.plan.arenas.arena_bytes[device]
        assert size <= budgets.get(device, 1 << 29)
