"""Memory that is estimated is the memory that a plan takes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.api.networks import Attention, perceptron, recurrent
from tests.conftest import Compile
from tests.shares import share
from tvm_xengine.compiler import plan as planning
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.platform import Platform


@pytest.fixture(scope="module", params=share(("mlp", "lenet"), ("mlp",)))
def network(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def found(network: str, cache: Path) -> xe.Estimate:
    return xe.estimate(network, batch_size=8, cache=cache)


@pytest.mark.slow
def test_keep_all_is_what_an_unlimited_plan_takes(
    network: str, found: xe.Estimate, compile_step: Compile
) -> None:
    step = compile_step(network, batch_size=8)
    assert step.executable.measured_peak_bytes["cpu"] == found.keep_all_bytes
    state = step.training.step.initial_state
    parameters = [v for n, v in state.items() if n in step.training.step.slots]
    aligned = sum(-(-value.nbytes // 64) * 64 for value in parameters)
    assert found.peak_bytes["parameters"] == aligned
    assert found.peak_bytes["optimizer state"] == aligned
    assert sum(found.peak_bytes.values()) <= found.keep_all_bytes


def test_fits_says_that_the_smallest_budget_works(found: xe.Estimate) -> None:
    assert found.fits(found.smallest_bytes)
    assert not found.fits(found.peak_bytes["parameters"])
    assert found.smallest_bytes <= found.keep_all_bytes


@pytest.mark.slow
def test_the_smallest_budget_works(network: str, found: xe.Estimate, compile_step: Compile) -> None:
    step = compile_step(network, batch_size=8, budget=found.smallest_bytes)
    assert step.executable.measured_peak_bytes["cpu"] <= found.smallest_bytes


@pytest.mark.slow
@pytest.mark.parametrize("network", ["attention", "recurrent"])
def test_a_plan_is_found_in_the_smallest_budget(
    network: str, cache: Path, compile_step: Compile
) -> None:
    torch.manual_seed(0)
    module = Attention() if network == "attention" else recurrent()
    inputs = torch.randint(0, 11, (4, 6)) if network == "attention" else torch.rand(8, 5, 3)
    options = {"loss": "cross_entropy", "optimizer": "adam"}
    found = xe.estimate(module, inputs, cache=cache, **options)
    # The known schedule may be one of slices, which take longer to make than the usual limit of tests.
    options |= {"budget": found.smallest_bytes, "time_limit_s": 20.0}
    step = compile_step(module, inputs, **options)
    assert step.plan.plan.arenas.arena_bytes["cpu"] <= found.smallest_bytes


def test_that_plan_is_found_where_every_solve_comes_too_late(
    network: str, found: xe.Estimate, compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:

    def late(*_args: object, **_options: object) -> Plan:
        raise NoScheduleError("the machine was busy")

    monkeypatch.setattr(planning, "plan_kernels", late)
    for left in ("left_s", "until_over_s"):
        monkeypatch.setattr(Clock, left, -1.0)
    step = compile_step(network, batch_size=8, budget=found.smallest_bytes)
    assert step.executable.measured_peak_bytes["cpu"] <= found.smallest_bytes
    assert step.plan.plan.result.solver == "greedy"


@pytest.mark.slow
def test_a_plan_below_the_smallest_known_one_is_looked_for(cache: Path) -> None:
    """Between what one op needs alone and what the first search needs, another one finds plans."""
    found = xe.estimate("mlp", batch_size=80, optimizer=xe.SGD(0.01, momentum=0.9), cache=cache)
    within = 400 << 10
    assert found.least_bytes < within < found.smallest_bytes
    assert not found.fits(found.least_bytes - 1)
    assert found.fits(within)
    assert found.largest_batch(within) >= 80


@pytest.mark.parametrize("most", [0, 1, 7, 300, 4999])
@pytest.mark.parametrize("error", [1.0, 1.02, 1.15])
def test_the_largest_batch_is_found_where_the_line_is_off(most: int, error: float) -> None:
    """Searches find plans in less than the smallest known schedules take."""
    tried = []

    def of_batch(count: int) -> xe.Estimate:
        tried.append(count)
        needed_bytes = 1000 + 100 * count
        known_bytes = int(error * needed_bytes)
        return xe.Estimate(
            "cpu", count, known_bytes, known_bytes, {}, of_batch, lambda size: size >= needed_bytes
        )

    assert of_batch(16).largest_batch(1000 + 100 * most) == most
    assert len(tried) <= 16


def test_a_budget_of_the_platform_limits_no_estimate(cache: Path) -> None:
    small = Platform((replace(xe.processor().devices[0], budget_bytes=1000),))
    limited, free = (
        xe.estimate("mlp", platform=one, batch_size=64, cache=cache)
        for one in (small, xe.processor())
    )
    assert limited.smallest_bytes == free.smallest_bytes > 1000


@pytest.mark.slow
def test_the_largest_batch_fits_and_one_more_does_not_at_once(cache: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 5))
    found = xe.estimate(module, torch.randn(4, 6), cache=cache)
    size = found.smallest_bytes + 4_000
    largest = found.largest_batch(size)
    assert largest > 4
    assert xe.estimate(module, torch.randn(largest, 6), cache=cache).fits(size)
    assert found._of_batch is not None
    assert not found._of_batch(largest + 1).fits(size)  # in slices it may
    assert found.largest_batch("1KiB") == 0


def test_frozen_parameters_are_constants_in_the_estimate(cache: Path) -> None:
    found = xe.estimate(perceptron(), torch.randn(4, 6), optimizer="adam", cache=cache)
    assert found.peak_bytes["constants"] >= 6 * 8 * 4
    assert found.peak_bytes["optimizer state"] >= 2 * found.peak_bytes["parameters"]
    assert "activations" in found.report()


@pytest.mark.slow
def test_another_device_that_computes_is_no_room_for_this_one(cache: Path) -> None:
    module = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4)))
    batch = torch.randn(64, 32)
    options = {"loss": "mse", "optimizer": xe.SGD(0.1), "cache": cache}
    alone = xe.estimate(module, batch, **options)
    beside = xe.estimate(module, batch, platform=xe.default_platform(), **options)
    assert alone.smallest_bytes < alone.keep_all_bytes
    assert beside.smallest_bytes == alone.smallest_bytes


def test_what_a_view_shows_counts_as_activations(cache: Path) -> None:
    module = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(144, 5))  # alive in every peak
    found = xe.estimate(module, torch.randn(8, 4, 6, 6), loss="cross_entropy", cache=cache)
    assert found.peak_bytes["activations"] >= 8 * 144 * 4
