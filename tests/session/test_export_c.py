"""A plan that the user has, written as C."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.errors import ExportError, InvalidPlatformError, InvalidScheduleError

Lower = Callable[..., xe.Lowered]


@pytest.fixture
def lower(cache: Path) -> Lower:
    return partial(xe.lower, cache=cache)


def deep(width: int = 24, depth: int = 6) -> xe.Training:
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
    module = nn.Sequential(*layers, nn.Linear(width, 5))
    return xe.training_step(module, torch.rand(512, width), loss="cross_entropy")


def planned(lowered: xe.Lowered, budget: float | None = None, solver: str = "auto") -> xe.StepPlan:
    problem = xe.make_problem(lowered, costs="roofline").with_budget(budget)
    return xe.plan(problem, solver=solver, time_limit_s=2.0)


def self_test(report: ExportReport, folder: Path) -> None:
    program = folder / "selftest"
    package = report.package
    build = selftest_build(report.directory, package)
    build_program(report.directory, package, build, program)
    done = run_program(program, package.target)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_schedule_and_the_budget_of_the_plan_are_those_of_the_package(
    lower: Lower, tmp_path: Path
) -> None:
    need_tools("host")
    lowered = lower(deep())
    plan = planned(lowered, 0.8, "local-search")  # auto may find slices of the batch cheaper
    assert plan.plan.schedule.recomputed_ops
    report = xe.export_c(lowered, plan, tmp_path / "out")
    assert report.schedule == plan.plan.schedule
    (arena_bytes,) = report.package.regions.values()
    assert arena_bytes <= plan.plan.problem.platform.devices[0].budget_bytes
    self_test(report, tmp_path)


@pytest.mark.slow
def test_each_device_of_a_plan_becomes_a_region(lower: Lower, tmp_path: Path) -> None:
    need_tools("host")
    pins = {"*": "cpu", "0.0.weight": "cpu_generic", "3.0.*": "cpu_generic"}
    lowered = lower(deep(), xe.default_platform(), pin=pins)
    plan = planned(lowered)
    assert plan.plan.schedule.transfers
    report = xe.export_c(lowered, plan, tmp_path / "out")
    assert set(report.package.regions) == {"cpu", "cpu_generic"}
    self_test(report, tmp_path)


def test_a_plan_of_another_step_is_refused(lower: Lower, tmp_path: Path) -> None:
    plan = planned(lower(deep(depth=1)))
    with pytest.raises(InvalidScheduleError, match="another step"):
        xe.export_c(lower(deep(25, depth=1)), plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_is_replaced_only_by_force_and_a_target_is_known(
    lower: Lower, tmp_path: Path
) -> None:
    lowered = lower(deep(depth=0))
    plan = planned(lowered)
    xe.export_c(lowered, plan, tmp_path / "out")
    with pytest.raises(ExportError, match="exists"):
        xe.export_c(lowered, plan, tmp_path / "out")
    xe.export_c(lowered, plan, tmp_path / "out", force=True)
    with pytest.raises(InvalidPlatformError, match="unknown target 'z80'"):
        xe.export_c(lowered, plan, tmp_path / "other", target="z80")


def test_a_device_whose_name_is_no_c_name_is_refused(lower: Lower, tmp_path: Path) -> None:
    platform = xe.Platform((xe.Device("CPU:0", "llvm -mcpu=native"),))
    lowered = lower(deep(depth=0), platform)
    with pytest.raises(InvalidPlatformError, match="C identifier"):
        xe.export_c(lowered, planned(lowered), tmp_path / "out")
