"""Plans for the least energy, with POET's figures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import attention
from tests.commands.in_process import run_command
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target, lower_for_target
from tvm_xengine.aot.plan.plan_step import Wishes, plan_training
from tvm_xengine.aot.plan.planned import PlannedTraining
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import writable_platform
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.costing.energy import kernel_energy_uj
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.operation_count import count_operations
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.platform import Device
from tvm_xengine.scheduling.platform_file import BOARDS, platform_path, read_platform
from tvm_xengine.scheduling.schedule import Compute, Transfer
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

TARGET = embedded_target("cortex-m4")

# chipsets.py of POET: nJ/flop; nJ/B and ms of paging in, and out; watts of the memory.
POET = {
    "mkr1000": (396.0, (71.5, 0.109), (74.3, 0.113), 0.330),
    "m4f": (1.72, (71.5, 0.109), (74.3, 0.113), 0.330),
    "rpi": (24.9, (3.3, 0.0051), (6.1, 0.0185), 0.150),
}


@pytest.mark.parametrize("board", POET)
def test_boards_carry_poets_figures(board: str) -> None:
    """E = flop * nJ, and a page costs (latency + bytes / throughput) * power of the memory."""
    nj_per_flop, *pages, watts = POET[board]
    platform = read_platform(platform_path(board))
    computing, storage = platform.devices
    assert computing.energy_nj_per_flop == nj_per_flop
    assert not storage.can_compute
    ways = ((storage.name, computing.name), (computing.name, storage.name))
    for (src, dst), (nj_per_byte, latency_ms) in zip(ways, pages, strict=True):
        link = platform.link_between[src, dst]
        for size in (64, 10_000):
            poet_uj = latency_ms * 1000 * watts + size * nj_per_byte / 1000
            assert link.transfer_uj(size) == pytest.approx(poet_uj, rel=0.01)
            assert link.transfer_us(size) * watts == pytest.approx(poet_uj, rel=0.01)
    assert "POET" in (BOARDS / f"{board}.toml").read_text()


def test_an_unknown_board_is_refused() -> None:
    with pytest.raises(InvalidPlatformError, match="mkr1000, rpi"):
        platform_path("mkr2000")


def planned(model: ForwardModel, budget_bytes: int, objective: Objective) -> PlannedTraining:
    board = writable_platform(read_platform(platform_path("m4f")), 8)
    # A card that draws little and is slow: the fastest plan is not the one of least energy.
    links = tuple(
        replace(link, energy_nj_per_byte=1e-3, energy_uj_per_copy=1e-3) for link in board.links
    )
    platform = replace(board, links=links).with_budgets({"sram": budget_bytes})
    machine = Machine(TARGET, platform, {}, code_target(TARGET, Backend.C))
    training = build_training_step(model, optimizer=SGD())
    options = PlanOptions(objective=objective, limits=Limits(5.0))
    return plan_training(training, machine, Optimize.SIZE, options, Wishes())


@pytest.mark.slow
def test_the_plan_of_least_energy_is_another_one() -> None:
    model = attention(2, 4, 8)
    ample = planned(model, 2**20, Objective.COST)
    kept = sum(np.prod(p.shape, dtype=int) * 4 for p in model.parameters.values())
    budget = int(kept + 0.75 * (ample.keep_all_bytes - kept))
    fast, frugal = (planned(model, budget, o) for o in (Objective.COST, Objective.ENERGY))
    times = [p.function.plan.simulation.cost_us for p in (fast, frugal)]
    energies = [p.function.plan.simulation.energy_uj for p in (fast, frugal)]
    assert times[0] < times[1]
    assert energies[1] < energies[0]
    plan = frugal.function.plan
    board = plan.problem.platform
    graph = plan.problem.graph
    total = 0.0
    for step in plan.schedule.steps:
        if isinstance(step, Compute):
            kernel = frugal.function.lowered.kernel(step.op, step.device)
            total += 1.72 * count_operations(kernel).float_ops / 1000
        elif isinstance(step, Transfer):
            size = graph.tensor[step.tensor].size_bytes
            total += board.link_between[step.src, step.dst].transfer_uj(size)
    assert plan.simulation.energy_uj == pytest.approx(total)
    assert any(isinstance(step, Transfer) for step in plan.schedule.steps)


def test_power_and_operations_add_up() -> None:
    model = attention(2)
    platform = writable_platform(read_platform(platform_path("m4f")), 8)
    training = build_training_step(model, optimizer=SGD())
    code = code_target(TARGET, Backend.C)
    lowered = lower_for_target(training.mod, platform, code, Optimize.SIZE, "train_step")
    kernel = next(iter(lowered.kernels.values()))
    flops = count_operations(kernel).float_ops
    device = Device("d", "c", power_w=0.5, energy_nj_per_flop=2.0)
    assert kernel_energy_uj(device, kernel, 100.0) == pytest.approx(50.0 + flops / 500)


def test_figures_out_of_range_are_refused(tmp_path: Path) -> None:
    text = (BOARDS / "rpi.toml").read_text().replace("24.9\n\n", "-1.0\n\n")
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InvalidPlatformError, match="energy_nj_per_flop must be finite and >= 0"):
        read_platform(tmp_path / "bad.toml")


@pytest.mark.slow
def test_arena_bytes_limit_the_first_region_of_a_platform(tmp_path: Path) -> None:
    out = tmp_path / "out"
    order = ("export", "mlp", "--batch", "1", "--target", "host", "--platform", "m4f")
    done = run_command(*order, "--arena-bytes", "128KiB", "--time-limit", "5", "-o", str(out))
    assert done.returncode == 0, done.stderr
    regions = json.loads((out / "mlp_plan.json").read_text())["regions"]
    assert regions["sram"]["bytes"] <= regions["sram"]["budget_bytes"] == 128 * 1024
