"""Choosing the layers that a package trains, against exhaustive search over all subsets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools, tiny_mlp
from tests.aot.test_package import Session
from tests.commands.in_process import run_command
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import write_package
from tvm_xengine.aot.layers.choose import LayerChoice, choose_layers
from tvm_xengine.aot.layers.known import StepLimits
from tvm_xengine.aot.layers.trials import Trials
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.aot.prepare import plan_export, prepare_export
from tvm_xengine.aot.prepared import PreparedExport, check_flash
from tvm_xengine.api import with_recipe
from tvm_xengine.errors import (
    ExportError,
    InvalidPlatformError,
    InvalidScoresError,
    NoScheduleError,
)
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.planning.subsets.relaxation import Row
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.step import TrainingStep

SCORES = {"fc1_weight": 5.0, "fc1_bias": 1.0, "fc2_weight": 3.0, "fc2_bias": 2.5}
LAYERS = tuple(Layer(name, (name,), score) for name, score in SCORES.items())


def options(regions: str, platform: Platform | None = None) -> ExportOptions:
    plan = PlanOptions(limits=Limits(5.0))
    return ExportOptions("cortex-m4", parse_regions(regions), plan=plan, platform=platform)


def training_of(names: Sequence[str]) -> tuple[ForwardModel, TrainingStep]:
    model = tiny_mlp()
    return model, build_training_step(model, optimizer=SGD(momentum=0.9), trainable=names)


NO_LIMITS = StepLimits()


def chosen(
    wanted: ExportOptions, limits: StepLimits = NO_LIMITS, most_plans: int = 100
) -> LayerChoice:
    return choose_layers(LAYERS, training_of, wanted, limits, most_plans)


def every_subset(wanted: ExportOptions) -> dict[frozenset[str], PreparedExport]:
    """The package of each subset that has one."""
    found = {}
    names = [layer.name for layer in LAYERS]
    for subset in (c for k in range(1, len(names) + 1) for c in combinations(names, k)):
        try:
            prepared = prepare_export(*training_of(subset), wanted, lambda _: None)
            check_flash(prepared)
        except NoScheduleError:
            continue
        found[frozenset(subset)] = prepared
    return found


def score(subset: frozenset[str]) -> float:
    return sum(SCORES[name] for name in subset)


def compiled_bytes(prepared: PreparedExport, folder: Path) -> int:
    """Flash of a package once it is compiled."""
    code = write_package(prepared, folder, force=True).code
    assert code is not None
    return prepared.flash_bytes + code.text_bytes


def step_us(prepared: PreparedExport) -> float:
    return prepared.train.plan.step_us()


@pytest.fixture(scope="module")
def ample() -> dict[frozenset[str], PreparedExport]:
    return every_subset(options("sram=1MiB"))


@pytest.mark.slow
@pytest.mark.parametrize("arena_bytes", [500, 700, 1000, 1300, 1600, 2000, 2400, 3000])
def test_no_subset_that_fits_the_arena_has_a_greater_score(arena_bytes: int) -> None:
    wanted = options(f"sram={arena_bytes}")
    best = max(map(score, every_subset(wanted)), default=0.0)
    if not best:
        with pytest.raises(NoScheduleError, match="no layer can be trained"):
            chosen(wanted)
        return
    found = chosen(wanted)
    assert found.choice.score == best
    assert found.choice.bound >= best - 1e-9
    assert found.prepared.arena_bytes["sram"] <= arena_bytes
    if not found.is_unproven:
        assert found.choice.gap == 0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 1.0])
def test_no_subset_that_keeps_the_time_has_a_greater_score(
    share: float, ample: dict[frozenset[str], PreparedExport]
) -> None:
    times = sorted(step_us(prepared) for prepared in ample.values())
    limit_us = times[0] + share * (times[-1] - times[0])
    best = max(score(subset) for subset, one in ample.items() if step_us(one) <= limit_us)
    found = chosen(options("sram=1MiB"), StepLimits(time_us=limit_us))
    assert (found.choice.score, found.choice.bound) == (best, best)
    assert step_us(found.prepared) <= limit_us


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_no_subset_that_keeps_the_energy_has_a_greater_score(share: float) -> None:
    sram = Device("sram", "c", budget_bytes=2**20, power_w=0.3, energy_nj_per_flop=1.7)
    wanted = options("sram=1MiB", Platform((sram,)))
    energies = {
        subset: one.train.plan.simulation.energy_uj for subset, one in every_subset(wanted).items()
    }
    least, most = min(energies.values()), max(energies.values())
    assert least < most
    limit_uj = least + share * (most - least)
    best = max(score(subset) for subset, energy_uj in energies.items() if energy_uj <= limit_uj)
    found = chosen(wanted, StepLimits(energy_uj=limit_uj))
    assert (found.choice.score, found.choice.bound) == (best, best)
    assert found.prepared.train.plan.simulation.energy_uj <= limit_uj


@pytest.mark.slow
def test_no_subset_that_fits_the_flash_with_its_code_has_a_greater_score(
    ample: dict[frozenset[str], PreparedExport], tmp_path: Path
) -> None:
    need_tools("cortex-m4")
    needed = {subset: compiled_bytes(one, tmp_path / "out") for subset, one in ample.items()}
    needs = sorted(set(needed.values()))
    for flash in (needs[0] - 1, *needs[::3]):
        best = max((score(s) for s, size in needed.items() if size <= flash), default=0.0)
        wanted = options(f"sram=1MiB,flash={flash}")
        if not best:
            with pytest.raises(NoScheduleError, match="bytes of flash"):
                chosen(wanted)
        else:
            found = chosen(wanted)
            assert found.choice.score == best
            assert found.choice.bound >= best


@pytest.mark.slow
def test_a_choice_leaves_flash_for_the_code_of_what_it_chose(tmp_path: Path) -> None:
    need_tools("cortex-m4")
    everything = prepare_export(*training_of(tuple(SCORES)), options("sram=1MiB"), lambda _: None)
    flash = compiled_bytes(everything, tmp_path / "everything") - 1
    found = chosen(options(f"sram=1MiB,flash={flash}"))
    assert 0 < found.choice.score < sum(SCORES.values())
    assert "code" in found.reason(list(found.is_trained.values()).index(False))
    assert compiled_bytes(found.prepared, tmp_path / "chosen") <= flash


def code_says(monkeypatch: pytest.MonkeyPatch, sizes: Callable[[int], int]) -> list[int]:
    """Lets the code of a package be as large as the number of its tensors says; returns what was compiled."""
    compiled: list[int] = []

    def compiled_size(_folder: Path, package: Package) -> CodeSize:
        compiled.append(len(package.state))
        return CodeSize(sizes(len(package.state)), 0, "")

    monkeypatch.setattr("tvm_xengine.aot.sources.compiled_size", compiled_size)
    monkeypatch.setattr("tvm_xengine.aot.export.compiled_size", compiled_size)
    return compiled


def test_code_that_is_too_much_is_a_fact_and_closes_the_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tensors of state for each layer: the code of three is twice what flash has, that of two fits."""
    code_says(monkeypatch, lambda tensors: 5_000 if tensors <= 4 else 20_000)
    found = chosen(options("sram=1MiB,flash=10000"))
    assert sum(found.is_trained.values()) == 2
    assert (found.choice.score, found.choice.bound) == (8.0, 8.0)
    assert not found.is_unproven
    assert not found.is_nearly_refused


@pytest.mark.slow
def test_code_that_is_nearly_small_enough_leaves_a_gap_that_time_does_not_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code_says(monkeypatch, lambda tensors: 5_000 if tensors <= 6 else 9_200)
    found = chosen(options("sram=1MiB,flash=10000"))
    assert found.choice.score < found.choice.bound == sum(SCORES.values())
    assert not found.is_unproven
    assert found.is_nearly_refused


def test_a_package_of_chosen_layers_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = code_says(monkeypatch, lambda _: 5_000)
    found = chosen(options("sram=1MiB,flash=64KiB"))
    compiled.clear()
    report = write_package(found.prepared, tmp_path / "out")
    assert not compiled
    assert report.code is not None
    assert report.code.text_bytes == 5_000


def test_where_everything_fits_all_layers_are_trained_by_one_plan() -> None:
    found = chosen(options("sram=64KiB"))
    assert all(found.is_trained.values())
    assert (found.choice.plans, found.choice.gap) == (1, 0.0)
    assert {found.reason(at) for at in range(len(LAYERS))} == {""}


def test_what_does_not_fit_is_frozen_and_says_why() -> None:
    found = chosen(options("sram=1500"))
    assert found.is_trained == {
        "fc1_weight": False,
        "fc1_bias": True,
        "fc2_weight": True,
        "fc2_bias": True,
    }
    assert re.search(
        r"alone it takes 1\d+ bytes of memory at least, more than 1500", found.reason(0)
    )
    assert found.prepared.arena_bytes["sram"] <= 1500


def test_an_interrupt_ends_the_search_with_the_best_choice_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def interrupted_after(plans: int) -> None:
        made: list[PreparedExport] = []

        def planned(*given: Any) -> PreparedExport:
            calls.append(len(made))
            if len(made) == plans:
                raise KeyboardInterrupt
            made.append(plan_export(*given))
            return made[-1]

        calls.clear()
        monkeypatch.setattr("tvm_xengine.aot.layers.trials.plan_export", planned)

    interrupted_after(1)
    found = chosen(options("sram=900"))
    assert calls.count(1) == 1  # nothing was tried after the interrupt
    assert found.is_interrupted
    assert 0 < found.choice.score <= found.choice.bound
    assert found.prepared.arena_bytes["sram"] <= 900
    interrupted_after(0)
    with pytest.raises(KeyboardInterrupt):
        chosen(options("sram=900"))
    assert calls == [0]


def test_a_search_that_is_cut_short_insists_on_what_its_bound_is_of() -> None:
    found = chosen(options("sram=700"), most_plans=1)
    assert 0 < found.choice.score <= found.choice.bound
    assert found.prepared.arena_bytes["sram"] <= 700


@pytest.mark.slow
def test_what_is_known_before_planning_is_never_more_than_what_a_plan_takes(
    ample: dict[frozenset[str], PreparedExport],
) -> None:
    """The rows of time and of memory, for every subset."""
    limits = StepLimits(time_us=1.0)
    rows = Trials(LAYERS, training_of, options("sram=1MiB"), limits, lambda _: None).rows()
    position = {layer.name: at for at, layer in enumerate(LAYERS)}
    for names, prepared in ample.items():
        subset = frozenset(position[name] for name in names)
        assert 0.9 * step_us(prepared) <= rows["time"].amount_of(subset) <= step_us(prepared)
        assert rows["memory"].amount_of(subset) <= prepared.arena_bytes["sram"]


def test_what_a_plan_disproves_limits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Row.of_each([1e6, 1e6, 1e6, 0.0], 60_000.0)
    strict = {"memory": replace(wrong, base=50_000.0)}
    monkeypatch.setattr("tvm_xengine.aot.layers.trials.rows_of", lambda *_: strict)
    found = chosen(options("sram=64KiB"))
    assert all(found.is_trained.values())
    assert (found.rows, found.choice.gap) == ({}, 0.0)


def test_a_package_that_trains_nothing_has_no_layers_to_choose() -> None:
    wanted = ExportOptions("host", parse_regions("sram=1MiB"), entries=(Entry.INFER,))
    with pytest.raises(ExportError, match="no entry point trains"):
        chosen(wanted)


def test_limits_of_energy_need_its_figures() -> None:
    with pytest.raises(InvalidPlatformError, match="power"):
        chosen(options("sram=1MiB"), StepLimits(energy_uj=1.0))


class SmallNet(nn.Module):
    """Two convolutions and a classifier for 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.head(torch.relu(self.second(x)).flatten(1))


@pytest.mark.slow
def test_the_chosen_layers_train_in_c_as_in_pytorch_with_the_others_frozen(tmp_path: Path) -> None:
    need_tools("host")
    module = SmallNet()
    training = xe.training_step(
        module, torch.zeros(2, 1, 8, 8), loss="cross_entropy", optimizer=xe.SGD(0.1, momentum=0.9)
    )
    report = xe.export_for_target(
        training,
        tmp_path / "out",
        regions={"sram": 8800},
        time_limit_s=10.0,
        train_budget=xe.TrainBudget({"first": 4.0, "second": 3.0, "head": 2.0}),
    )
    assert report.choice is not None
    assert report.choice.is_trained == {"first": True, "second": True, "head": False}
    trained = [*module.first.parameters(), *module.second.parameters()]
    optimizer = torch.optim.SGD(trained, 0.1, momentum=0.9)
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == 0
    random = np.random.default_rng(0)
    for _ in range(10):
        x = random.normal(size=(2, 1, 8, 8)).astype(np.float32)
        labels = random.integers(0, 4, 2)
        results = [np.zeros(1, np.float32) for _ in report.leading.program.interface.results]
        assert session.call("train_step", x, labels, *results) == 0
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(labels))
        loss.backward()
        optimizer.step()
        assert results[0][0] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flash_kib", "least_score", "most_score"), [(1024, 5.5, 6.5), (212, 5.0, 5.0), (190, 3.0, 4.5)]
)
def test_what_is_frozen_in_int8_leaves_flash_for_what_is_trained(
    flash_kib: int, least_score: float, most_score: float, tmp_path: Path
) -> None:
    """All in float32 take 305 KiB of flash, and code 22; behind an early trained layer nothing is int8."""
    need_tools("host")
    model = {"batch_size": 2, "size": 8, "loss": "cross_entropy", "optimizer": "sgd"}
    training = xe.training_step("resnet8", **model)
    used = replace(training.source, training=in_evaluation_mode(training.source.training))
    training = with_recipe(replace(training, source=used))
    images = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    scores = {"fc": 3.0, "stage3_conv2": 2.0, "stage3_conv1": 1.0, "stage1_conv1": 0.5}
    report = xe.export_for_target(
        training,
        tmp_path / "out",
        target="cortex-m4",
        regions={"sram": "256KiB", "flash": f"{flash_kib}KiB"},
        time_limit_s=20.0,
        train_budget=xe.TrainBudget(scores, frozen=xe.Int8(images)),
    )
    assert report.choice is not None
    score = sum(scores[name] for name, is_trained in report.choice.is_trained.items() if is_trained)
    assert least_score <= score <= most_score
    assert report.code is not None
    assert report.choice.prepared.flash_bytes + report.code.text_bytes <= flash_kib * 1024
    dtypes = {str(array.dtype) for array in report.package.constants.values()}
    assert "int8" in dtypes


def test_scores_of_a_file_choose_what_a_package_trains(tmp_path: Path) -> None:
    scores, out, report = (tmp_path / name for name in ("scores.toml", "out", "report.json"))
    scores.write_text("fc1 = 1.0\nfc2_weight = 2\nfc3 = 0.5\n")
    order = ("export", "mlp", "--batch", "2", "--target", "host", "--arena-bytes", "90KiB")
    order = (*order, "--time-limit", "5", "-o", str(out), "--train-scores")
    done = run_command(*order, str(scores), "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert "score 2.5 of 3.5, at most 2.5" in done.stdout
    choice = json.loads(report.read_text())["choice"]
    assert {row["name"]: row["is_trained"] for row in choice["layers"]} == {
        "fc1": False,
        "fc2_weight": True,
        "fc3": True,
    }
    plan = json.loads((out / "mlp_plan.json").read_text())
    assert set(plan["frozen"]) == {"model/fc1_weight", "model/fc1_bias", "model/fc2_bias"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("conv9 = 1", "'conv9' is no layer or parameter of the model; the closest are"),
        ("fc1 = -1", "at least 0 as the score of 'fc1', got -1"),
        ("fc1 = nan", "finite number"),
        ("fc1 = inf", "finite number"),
        ("fc1 = true", "got True"),
        ('fc1 = "much"', "got 'much'"),
        ("fc1 = 0", "at least one layer above 0"),
        ("", "at least one layer above 0"),
        ("fc1 = 1e308\nfc2 = 1e308", "finite sum"),
        ("fc1 = [1", "is no scores file"),
        ('"a.b" = 1\n[a]\nb = 2', "'a.b' has two scores"),
        ("fc1 = 1\nfc1_weight = 1\nfc1_bias = 1", "all parameters of 'fc1' have scores"),
        ("fc3 = 1", "'fc3' has a score but is not trained (matches freeze='fc3*')"),
    ],
)
def test_wrong_scores_are_refused(text: str, said: str, tmp_path: Path) -> None:
    scores = tmp_path / "scores.toml"
    scores.write_text(text)
    order = ("export", "mlp", "--batch", "1", "--target", "host", "--arena-bytes", "1MiB")
    order = (*order, "--freeze", "fc3*", "-o", str(tmp_path / "out"), "--train-scores", str(scores))
    assert said in run_command(*order).refusal()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--train-budget", "time=3ms"), "give a file or samples with --train-scores"),
        (("--train-scores", "scores"), "takes a .toml file of scores, or samples"),
        (("--train-scores", "none.toml"), "cannot read scores file none.toml"),
        (("--train-scores", "digits", "--train-budget", "arena=3KiB"), "memory is limited by"),
        (("--train-scores", "digits", "--train-budget", "time=3"), "expected time=20ms"),
        (("--train-scores", "digits", "--train-budget", "time=-3ms"), "above 0"),
        (("--train-scores", "digits", "--train-budget", "time=3mJ"), "expected time=20ms"),
        (("--train-scores", "digits", "--train-budget", "trials=0"), "at least 1"),
        (("--train-scores", "digits", "--train-budget", "time=3ms", "time=4ms"), "given twice"),
    ],
)
def test_wrong_budgets_are_refused(given: tuple[str, ...], said: str, tmp_path: Path) -> None:
    order = ("export", "mlp", "--target", "host", "--arena-bytes", "1MiB")
    assert said in run_command(*order, "-o", str(tmp_path / "out"), *given).refusal()


def test_wrong_scores_are_refused_by_the_library(tmp_path: Path) -> None:
    training = xe.training_step("mlp", batch_size=1, loss="cross_entropy", optimizer="sgd")
    for scores in ({"fc9": 1.0}, {"fc1": float("nan")}, {}):
        with pytest.raises(InvalidScoresError):
            xe.export_for_target(
                training,
                tmp_path / "out",
                regions={"sram": "1MiB"},
                train_budget=xe.TrainBudget(scores),
            )
    with pytest.raises(ValueError, match="time_us"):
        xe.TrainBudget({"fc1": 1.0}, time_us=0.0)
