"""Frozen layers in int8 as C: memory, and the self-test on emulated processors."""

from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportReport

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
