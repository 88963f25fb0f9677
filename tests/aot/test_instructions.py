"""Estimated instructions of a step, judged by QEMU's counts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tvm import te, topi
from tvm.target import Target
from tvm.tirx import Expr

import tvm_xengine as xe
from benchmarks.embedded.parity.networks import CASES
from benchmarks.embedded.parity.run_c import run_in_c
from tests.aot.examples import need_tools
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.plan.instructions import kernel_instructions, step_instructions
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel


def doubled_rows() -> DeviceKernel:
    """y[i, j] = x[i, j] + 2 * r[i] of 6 rows and 5 columns, loops as written."""
    x, r = te.placeholder((6, 5), "float32", "x"), te.placeholder((6,), "float32", "r")
    y = te.compute((6, 5), lambda i, j: x[i, j] + r[i] * topi.cast(2.0, "float32"))
    return prepare_kernel(
        te.create_prim_func([x, r, y]), Target({"kind": "c"}), schedule=lambda func, _: func
    )


def test_what_a_loop_does_not_change_counts_once_around_it() -> None:
    loops = (1 + 6 + 6 * (1 + 5)) * 3
    hoisted, inside = 6 * (1 + 1), 30 * (1 + 1 + 1)
    assert kernel_instructions(doubled_rows(), embedded_target("cortex-m4")) == pytest.approx(
        loops + hoisted + inside
    )
    in_software = kernel_instructions(doubled_rows(), embedded_target("cortex-m0"))
    assert in_software == pytest.approx(loops + 6 * (36 + 1) + 30 * (36 + 1 + 1))


@pytest.mark.parametrize("function", [te.log, te.atan, te.log2])
def test_functions_of_the_c_library_count(function: Callable[[Expr], Expr]) -> None:
    x = te.placeholder((7,), "float64", "x")
    y = te.compute((7,), lambda i: function(x[i]))
    kernel = prepare_kernel(
        te.create_prim_func([x, y]), Target({"kind": "c"}), schedule=lambda func, _: func
    )
    assert kernel_instructions(kernel, embedded_target("cortex-m4")) > 7 * 100


def exported(network: str, target: str, sram: int, folder: Path) -> ExportReport:
    case = CASES[network]
    example = torch.from_numpy(case.batches(1)[0][0])
    training = xe.training_step(case.module(), example, loss=case.loss, optimizer=xe.SGD(0.01))
    return xe.export_for_target(
        training,
        folder / f"{network}_{sram}",
        target=target,
        regions={"sram": sram},
        entries=("train_step",),
        time_limit_s=3.0,
    )


def estimated_and_counted(report: ExportReport, network: str, folder: Path) -> tuple[float, float]:
    target = report.package.target
    function = report.leading
    estimate = step_instructions(function.lowered, function.plan.schedule, target)
    batches = CASES[network].batches(1)
    return estimate, run_in_c(report, target.name, batches, folder, counts=True).instructions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "target", "error"),
    [
        ("lenet", "cortex-m4", 0.1),
        ("transformer", "cortex-m4", 0.1),
        ("mobilenet", "cortex-m4", 0.1),
        ("lenet", "cortex-m3", 0.25),
        ("transformer", "cortex-m3", 0.25),
    ],
)
def test_an_estimate_is_near_what_an_emulated_processor_executes(
    network: str, target: str, error: float, tmp_path: Path
) -> None:
    need_tools(target)
    report = exported(network, target, 3 << 20, tmp_path)
    estimate, counted = estimated_and_counted(report, network, tmp_path)
    assert estimate == pytest.approx(counted, rel=error)


@pytest.mark.slow
def test_what_a_smaller_arena_costs_is_estimated(tmp_path: Path) -> None:
    """Slices and recomputation: the ratio to keeping all."""
    need_tools("cortex-m4")
    ample = exported("transformer", "cortex-m4", 3 << 20, tmp_path)
    kept, keep_all = ample.package.kept_bytes["sram"], ample.keep_all_bytes
    assert keep_all is not None
    tight = exported("transformer", "cortex-m4", kept + (keep_all - kept) // 2, tmp_path)
    assert tight.leading.plan.recomputed_ops
    found = [estimated_and_counted(report, "transformer", tmp_path) for report in (ample, tight)]
    (estimate, tight_estimate), (counted, tight_counted) = np.array(found).T
    assert tight_counted > counted
    assert tight_estimate / estimate == pytest.approx(tight_counted / counted, rel=0.05)
