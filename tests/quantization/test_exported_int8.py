"""Frozen layers in int8 as C: memory, and the self-test on emulated processors."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from benchmarks.embedded.parity.networks import CASES
from tests.aot.examples import need_tools
from tests.aot.test_package import SANITIZED
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport, export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.kernels import Optimize
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.solvers.result import Limits

SAMPLES = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype("float32")


def exported(folder: Path, target: str, frozen: xe.Int8 | None) -> ExportReport:
    training = xe.training_step(
        "resnet8", train=["fc*"], loss="cross_entropy", optimizer="sgd", batch_size=1, size=8, frozen=frozen
    )  # fmt: skip
    entries = ["train_step", "infer"]
    return xe.export_for_target(
        training, folder, target=target, regions={"sram": "256KiB"}, entries=entries, time_limit_s=5
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", ["host", "cortex-m4", "cortex-m55"])
def test_a_frozen_network_takes_a_quarter_of_the_memory(target: str, tmp_path: Path) -> None:
    need_tools(target)
    whole = exported(tmp_path / "int8", target, xe.Int8(SAMPLES))
    build = selftest_build(whole.directory, whole.package)
    build_program(whole.directory, whole.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", whole.package.target).returncode == 0
    real = exported(tmp_path / "float32", target, None)
    # A bias and a factor for each channel, and what is trained, keep it from a quarter.
    assert whole.package.flash_bytes < 0.3 * real.package.flash_bytes
    assert whole.keep_all_bytes is not None and real.keep_all_bytes is not None
    assert whole.keep_all_bytes < 0.5 * real.keep_all_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "optimize", "most_ratio"),
    [
        # Kernels for speed may pack weights in scratch memory, of which more is allowed beside int8.
        ("host", Optimize.SPEED, 1.2),
        ("cortex-m55", Optimize.SPEED, 1.2),
        ("cortex-m4", Optimize.SIZE, 1.0),
        ("rv32imc", Optimize.SIZE, 1.0),
    ],
)
def test_weights_behind_a_trained_layer_take_a_quarter_of_flash_and_no_arena(
    target: str, optimize: Optimize, most_ratio: float, tmp_path: Path
) -> None:
    need_tools(target)
    found = []
    for behind in (False, True):
        training = xe.training_step(
            "resnet8", train=["stage1_conv1*"], loss="cross_entropy", optimizer="sgd", batch_size=1, size=8,
            frozen=xe.Int8(SAMPLES, behind=behind),
        )  # fmt: skip
        options = ExportOptions(
            target=target,
            regions=parse_regions("sram=512KiB"),
            optimize=optimize,
            plan=PlanOptions(limits=Limits(5.0)),
            entries=(Entry.TRAIN_STEP, Entry.INFER),
            recipe=training.known_recipe,
        )
        folder = tmp_path / f"{behind}"
        report = export_step(training.source.training, training.step, options, folder)
        build = selftest_build(folder, report.package)
        build_program(folder, report.package, build, tmp_path / "selftest")
        assert run_program(tmp_path / "selftest", report.package.target).returncode == 0
        found.append(report.package)
    real, stored = found
    # Biases, norms and a scale for each channel stay in float32.
    assert stored.flash_bytes < 0.35 * real.flash_bytes
    assert stored.regions["sram"] <= most_ratio * real.regions["sram"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_weights_in_int8_behind_the_first_layer_of_other_networks(
    name: str, tmp_path: Path
) -> None:
    need_tools("host")
    case = CASES[name]
    module = case.module()
    first = next(name for name, _ in module.named_parameters()).rpartition(".")[0]
    samples = np.concatenate([x for x, _ in case.batches(4)])
    training = xe.training_step(
        module,
        torch.from_numpy(case.batches(1)[0][0]),
        train=[f"{first}.*"],
        loss=case.loss,
        optimizer="momentum",
        frozen=xe.Int8(samples, behind=True),
    )
    entries = ["train_step", "eval", "infer"]
    report = xe.export_for_target(
        training, tmp_path / "out", regions={"sram": "4MiB"}, entries=entries, time_limit_s=3
    )
    assert "int8" in {str(value.dtype) for value in report.package.constants.values()}
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0
