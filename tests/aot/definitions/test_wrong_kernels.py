"""A self-test finds kernels whose loops compute something else than they are defined to compute."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tvm import tirx

import tvm_xengine as xe
from benchmarks.embedded.parity.networks import CASES
from tests.aot import examples
from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.frontends import zoo
from tvm_xengine.kernels import device_kinds
from tvm_xengine.kernels.lower import pipeline
from tvm_xengine.kernels.schedules.products.padded import PaddedCopy


@pytest.fixture(autouse=True)
def no_known_kernels() -> Iterator[None]:
    """Kernels are lowered anew, and those with a fault are not kept."""
    device_kinds._lowered_for_processor.cache_clear()
    yield
    device_kinds._lowered_for_processor.cache_clear()


def export(network: str, folder: Path) -> ExportReport:
    case = CASES[network]
    example = torch.from_numpy(case.batches(1)[0][0])
    training = xe.training_step(case.module(), example, loss=case.loss, optimizer=xe.SGD(0.1))
    return xe.export_for_target(
        training, folder / "out", regions={"sram": "1MiB"}, time_limit_s=1.0
    )


def failed_check(report: ExportReport, folder: Path) -> int:
    build = selftest_build(report.directory, report.package)
    build_program(report.directory, report.package, build, folder / "selftest")
    return run_program(folder / "selftest", report.package.target).returncode


def simplified_wrongly(patch: pytest.MonkeyPatch) -> None:
    """TVM's own simplification of indices, which is wrong for the gradients of some poolings."""
    patch.setattr(pipeline, "flatten_buffers", tirx.transform.FlattenBuffer)


def copied_from_outside(patch: pytest.MonkeyPatch) -> None:
    """Copies of images have something of rows that lie outside."""
    right = PaddedCopy.copied

    def copied(self: PaddedCopy, at: object) -> tirx.Stmt:
        boxes = tuple(
            dataclasses.replace(box, first=box.least, stop=box.most + 1) for box in self.boxes
        )
        return right(dataclasses.replace(self, boxes=boxes), at)

    patch.setattr(PaddedCopy, "copied", copied)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "check"), [(simplified_wrongly, 8), (copied_from_outside, 3)])
def test_a_fault_of_loops_fails(
    fault: Callable[[pytest.MonkeyPatch], None],
    check: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Of the backward pass the first update tells, of the forward pass the first loss."""
    need_tools("host")
    fault(monkeypatch)
    assert failed_check(export("missed_edges", tmp_path), tmp_path) == check


@pytest.mark.slow
def test_right_loops_pass(tmp_path: Path) -> None:
    need_tools("host")
    assert failed_check(export("missed_edges", tmp_path), tmp_path) == 0


@pytest.mark.slow
def test_a_gradient_of_the_wrong_sign_fails_where_training_amplifies_rounding(
    tmp_path: Path,
) -> None:
    """MobileNetV2's batch norms over eight values: no loss of a second step tells of a gradient."""
    need_tools("host")
    model = zoo.build("mobilenetv2", batch_size=8)
    report = examples.export(
        model, tmp_path / "out", regions="sram=512MiB", time_limit_s=1.0, selftest_steps=2
    )
    assert report.expected.tolerances[1] > 0.05
    assert failed_check(report, tmp_path) == 0
    kernels = report.directory / "mobilenetv2_kernels.c"
    code = kernels.read_text()
    update = re.compile(
        r"(_conv_weight_gradient\d*_sgd_update\d*\(const.*? = \(x2\[.*?\]) - ", re.DOTALL
    )
    assert update.search(code)
    kernels.write_text(update.sub(r"\1 + ", code, count=1))
    assert failed_check(report, tmp_path) == 8
