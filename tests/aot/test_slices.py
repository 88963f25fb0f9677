"""Packages with lean kernels, or in slices of the batch, because the regions have no room otherwise."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.calls.test_emulated import passes
from tests.aot.examples import need_tools
from tests.aot.test_package import SANITIZED, Session
from tests.commands.in_process import run_command
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport, export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.plan_step import Wishes
from tvm_xengine.aot.plan.regions import Region
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.schedule import without_variants
from tvm_xengine.solvers.result import Limits

RATE = 0.1
SIZE = 6 * 1024


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 3))


def training_of(module: nn.Module) -> xe.Training:
    x, optimizer = torch.zeros(8, 1, 8, 8), xe.SGD(RATE)
    return xe.training_step(module, x, loss="cross_entropy", optimizer=optimizer)


def slices_of(report: ExportReport) -> list[int]:
    return [function.slices for function in report.functions.values()]


def equals_pytorch(report: ExportReport, module: nn.Module, folder: Path) -> None:
    """Evaluation, loss and every gradient of a step are those of PyTorch, under sanitizers' warnings."""
    session = Session(report, folder, *SANITIZED[:4])
    assert session.init() == session.call("state_reset") == 0
    random = np.random.default_rng(0)
    x = random.normal(size=(8, 1, 8, 8)).astype(np.float32)
    labels = random.integers(0, 3, 8)
    output = np.zeros((8, 3), np.float32)
    assert session.call("eval", x, output) == 0
    np.testing.assert_allclose(output, module(torch.tensor(x)).detach(), rtol=1e-5, atol=1e-6)
    results = [np.zeros(1, np.float32) for _ in report.leading.program.interface.results]
    assert session.call("train_step", x, labels, *results) == 0
    loss = nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(labels))
    loss.backward()
    assert results[0][0] == pytest.approx(loss.item(), rel=1e-5)
    for tensor, parameter in zip(report.package.state, module.parameters(), strict=True):
        gradient = (tensor.initial - session.state(tensor.name)) / RATE
        np.testing.assert_allclose(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_package_in_slices_trains_as_pytorch_in_less_memory(tmp_path: Path) -> None:
    need_tools("host")
    report = xe.export_for_target(
        training_of(network()), tmp_path / "out", regions={"sram": SIZE}, time_limit_s=2.0
    )
    assert min(slices_of(report)) > 1
    assert report.package.regions["sram"] <= SIZE
    assert report.keep_all_bytes is not None
    assert report.keep_all_bytes > 2 * SIZE
    equals_pytorch(report, network(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m4", "riscv64"])
def test_a_package_in_slices_passes_on_an_emulated_processor(target: str, tmp_path: Path) -> None:
    need_tools(target)
    report = xe.export_for_target(
        training_of(network()),
        tmp_path / "out",
        target=target,
        regions={"sram": SIZE},
        time_limit_s=5.0,
    )
    assert min(slices_of(report)) > 1
    passes(report, tmp_path)


@pytest.mark.slow
def test_a_plan_in_slices_is_exported_as_it_is(cache: Path, tmp_path: Path) -> None:
    need_tools("host")
    lowered = xe.lower(training_of(network()), cache=cache)
    problem = xe.make_problem(lowered, costs="roofline")
    plan = xe.plan(problem.with_budget(14 * 1024), time_limit_s=5.0)
    assert plan.planned.lowered.slices > 1
    report = xe.export_c(lowered, plan, tmp_path / "out")
    assert report.functions[Entry.TRAIN_STEP].slices == plan.planned.lowered.slices
    assert report.schedule == without_variants(plan.plan.schedule)
    equals_pytorch(report, network(), tmp_path)


@pytest.mark.slow
def test_the_command_says_in_how_many_slices_and_runs_a_saved_schedule_of_them(
    tmp_path: Path,
) -> None:
    need_tools("host")
    saved, found = tmp_path / "saved.json", tmp_path / "found.json"
    order = ("export", "lenet", "--batch", "16", "--time-limit", "10", "--target", "host")
    order = (*order, "--arena-bytes", "560KiB", "--json", str(found))
    first = run_command(*order, "--save-schedule", str(saved), "-o", str(tmp_path / "first"))
    assert first.returncode == 0, first.stderr
    report = json.loads(found.read_text())
    slices = report["slices"]["train_step"]
    assert slices > 1
    assert f"in {slices} slices of the batch" in first.stdout
    assert report["regions"]["sram"]["bytes"] <= 560 * 1024 < report["keep_all_bytes"]
    same = tmp_path / "same.json"
    again = (*order, "--schedule", str(saved), "--save-schedule", str(same), "--check")
    done = run_command(*again, "-o", str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    assert json.loads(same.read_text()) == json.loads(saved.read_text())
    assert json.loads(found.read_text())["slices"]["train_step"] == slices


def one_sample() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))


def export_of_one_sample(folder: Path, size: int, wishes: Wishes) -> ExportReport:
    x, optimizer = torch.zeros(1, 16, 4, 4), xe.SGD(RATE)
    training = xe.training_step(one_sample(), x, loss="cross_entropy", optimizer=optimizer)
    plan = PlanOptions(limits=Limits(time_limit_s=0.5))
    options = ExportOptions(
        "host", (Region("sram", size),), plan=plan, learning_rate=RATE, wishes=wishes
    )
    return export_step(training.source.training, training.step, options, folder)


@pytest.mark.slow
def test_kernels_of_less_scratch_memory_run_where_there_is_no_room_for_the_usual_ones(
    tmp_path: Path,
) -> None:
    """The padded copy that the gradient of the weights reads would take half of the arena."""
    need_tools("host")
    report = export_of_one_sample(tmp_path / "out", 4400, Wishes())
    assert report.package.regions["sram"] <= 4400 < report.keep_all_bytes
    assert slices_of(report) == [1, 1]
    assert report.functions[Entry.TRAIN_STEP].lean_kernels > 0
    session, module = Session(report, tmp_path, *SANITIZED[:4]), one_sample()
    assert session.init() == session.call("state_reset") == 0
    x = np.random.default_rng(0).normal(size=(1, 16, 4, 4)).astype(np.float32)
    assert session.call("train_step", x, np.array([1]), None, None) == 0
    nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor([1])).backward()
    for tensor, parameter in zip(report.package.state, module.parameters(), strict=True):
        gradient = (tensor.initial - session.state(tensor.name)) / RATE
        np.testing.assert_allclose(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_given_schedule_takes_such_kernels_where_it_names_them_or_has_to(tmp_path: Path) -> None:
    need_tools("host")
    first = export_of_one_sample(tmp_path / "first", 4400, Wishes()).schedule
    plain = without_variants(first)
    assert plain != first
    for size, given, expected in (
        (4400, plain, first),
        (65536, plain, plain),
        (65536, first, first),
    ):
        folder = tmp_path / f"{size}-{given is first}"
        assert export_of_one_sample(folder, size, Wishes(schedule=given)).schedule == expected
