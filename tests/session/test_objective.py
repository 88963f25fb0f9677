"""A plan for the makespan trains as the same plan in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tvm_xengine.runtime.events import can_overlap

_PLATFORM = xe.Platform(
    (
        xe.Device("a", "llvm -mcpu=native", kernels=("tir",)),
        xe.Device("b", "llvm -mcpu=native", kernels=("tir",)),
    ),
    (xe.Link("a", "b", 1.0, 10.0), xe.Link("b", "a", 1.0, 10.0)),
)


@pytest.mark.slow
@pytest.mark.skipif(not can_overlap(), reason="devices run in turn here")
def test_devices_run_side_by_side_and_losses_are_those_of_one_device(cache: Path) -> None:
    both, one = (
        xe.compile(
            "lenet",
            platform=_PLATFORM,
            objective=objective,
            costs="roofline",
            time_limit_s=5.0,
            pin=pin,
            cache=cache,
        )
        for objective, pin in (("makespan", None), ("cost", {"*": "a"}))
    )
    assert both.executable.is_overlapped
    assert not one.executable.is_overlapped
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.random((16, 1, 28, 28), dtype="float32")
        y = rng.integers(0, 10, 16)
        assert both(x, y) == one(x, y)
    ours, other = both.state_dict(), one.state_dict()
    assert all(np.array_equal(ours[name], other[name]) for name in ours)


def test_an_objective_that_does_not_exist_is_refused_by_name(cache: Path) -> None:
    with pytest.raises(ValueError, match="objective"):
        xe.compile("mlp", objective="speed", cache=cache)


def test_a_core_that_the_process_may_not_use_is_refused(cache: Path) -> None:
    first, second = _PLATFORM.devices
    platform = xe.Platform((xe.Device("a", first.target, cores=(4095,)), second), _PLATFORM.links)
    with pytest.raises(xe.XEngineError, match="device a: expected cores among"):
        xe.compile(
            "mlp",
            platform=platform,
            objective="makespan",
            costs="roofline",
            time_limit_s=2.0,
            pin={"loss_forward": "b"},  # or one device might do
            cache=cache,
        )
