"""Packages in C: bytes of memory and code, and instructions of one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.record import record
from tests.aot.examples import MODELS, attention, export, facts_mlp, need_tools, tiny_mlp
from tvm_xengine.aot.check.emulation import Build, build_program, run_program, selftest_build
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.contents import arguments_of
from tvm_xengine.frontends import zoo

EXECUTORCH_BYTES = {"facts_mlp": 11_056, "tiny_mlp": 2_896, "lenet": 824_064, "attention": 24_672}
"""What ExecuTorch 1.5.1 plans for forward and backward (`non_const_buffer_sizes`), parameters and
batch included, the optimizer not: the same networks, batches and losses in PyTorch 2.13, through
`_export_forward_backward` and `to_edge`. It cannot lower batch norms that are trained."""

AIFES_MLP_BYTES = 9_520
"""AIfES 2.2 for the perceptron 16-32-10 with SGD, one sample at a time (3,496 parameters)."""

PEERS = {
    "facts_mlp": facts_mlp,
    "tiny_mlp": tiny_mlp,
    "lenet": lambda: zoo.build("lenet", batch_size=2),
    "attention": attention,
}


def instructions(report: ExportReport, folder: Path) -> int:
    """Of one training step, exact and repeatable."""
    package = report.package
    size = {
        view.name: int(np.prod(view.shape))
        for view in arguments_of(package.functions[Entry.TRAIN_STEP])
    }
    flags = [
        f"-DNAME={package.name}",
        f'-DHEADER="{package.name}.h"',
        f"-DREGION_BYTES={package.macro}_SRAM_BYTES",
        f"-DPLAN_HASH={package.macro}_PLAN_HASH",
        f"-DINPUTS={size['x']}",
        f"-DLABELS={size['labels']}",
        "-DXE_COUNT_INSTRUCTIONS",
        "-DXE_SEMIHOSTING_FILES",
    ]
    main = Path(__file__).parent / "count_instructions.c"
    build_program(report.directory, package, Build(main, flags), folder / "count")
    done = run_program(folder / "count", package.target, "-icount", "shift=0")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def passes_its_selftest(report: ExportReport, folder: Path) -> bool:
    build = selftest_build(report.directory, report.package)
    build_program(report.directory, report.package, build, folder / "selftest")
    return run_program(folder / "selftest", report.package.target).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("network", MODELS)
def test_memory_code_and_instructions(network: str, tmp_path: Path) -> None:
    """With the project's schedules, with loops as written, and through LLVM."""
    need_tools("cortex-m7")
    counts = {}
    for optimize, backend in (("speed", "c"), ("size", "c"), ("speed", "llvm")):
        report = export(
            MODELS[network](),
            tmp_path / f"{optimize}-{backend}",
            target="cortex-m7",
            regions="sram=3MiB",
            optimize=optimize,
            backend=backend,
        )
        assert report.code is not None
        counts[optimize, backend] = instructions(report, tmp_path)
        row = {
            "network": network,
            "optimize": optimize,
            "backend": backend,
            "arena_bytes": report.package.regions["sram"],
            "state_bytes": report.package.state_bytes,
            "code_bytes": report.code.text_bytes,
            "stack_bytes": report.code.stack_bytes,
            "instructions": counts[optimize, backend],
        }
        record("embedded", row)
    assert counts["speed", "llvm"] < counts["size", "c"]


@pytest.mark.slow
def test_resnet8_in_half_the_memory(tmp_path: Path) -> None:
    need_tools("cortex-m7")
    model = zoo.build("resnet8", batch_size=1)
    ample = export(model, tmp_path / "ample", target="cortex-m7", optimize="size")
    kept = ample.package.kept_bytes["sram"]
    half = kept + (ample.keep_all_bytes - kept) // 2
    report = export(
        model,
        tmp_path / "half",
        target="cortex-m7",
        optimize="size",
        regions=f"sram={half}",
        time_limit_s=240,
    )
    plan = report.leading.plan
    added = plan.simulation.cost_us / ample.leading.plan.simulation.cost_us - 1
    print(
        f"resnet8: arena beside the state {report.package.regions['sram'] - kept} of"
        f" {ample.keep_all_bytes - kept} bytes, {plan.schedule.recomputed_ops} ops recomputed,"
        f" +{added:.0%} estimated time, {instructions(report, tmp_path)} instructions"
        f" against {instructions(ample, tmp_path)}"
    )
    assert report.package.regions["sram"] <= half
    assert passes_its_selftest(report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("network", PEERS)
def test_memory_beside_peers(network: str, tmp_path: Path) -> None:
    """State, arena and batch with SGD, nothing recomputed, beside what a peer plans."""
    need_tools("cortex-m7")
    report = export(PEERS[network](), tmp_path / network, target="cortex-m7", optimize="size")
    assert report.code is not None
    package = report.package
    batch = sum(view.size_bytes for view in arguments_of(package.functions[Entry.TRAIN_STEP]))
    total = sum(package.regions.values()) + batch
    row = {
        "network": network,
        "bytes": total,
        "state_bytes": package.state_bytes,
        "batch_bytes": batch,
        "peer_bytes": EXECUTORCH_BYTES[network],
        "code_bytes": report.code.text_bytes,
        "instructions": instructions(report, tmp_path),
    }
    record("embedded", {"optimize": "size", "backend": "c, beside a peer", **row})
    assert report.leading.plan.schedule.recomputed_ops == 0
    assert total < EXECUTORCH_BYTES[network]
    if network == "facts_mlp":
        assert total < AIFES_MLP_BYTES
