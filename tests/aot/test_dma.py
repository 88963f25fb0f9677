"""Where DMA copies between regions while the processor computes, every delay leaves the same bits."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.emit_c.prototypes import Argument, arguments
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.program.transfers import Run, Start, Wait, in_transfers

HERE = Path(__file__).parent
RUNS = 8


def exported(folder: Path, target: str, batch: int, sram: str) -> ExportReport:
    """A step whose weights do not all fit into the fast region."""
    layers = [nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4)]
    training = xe.training_step(
        nn.Sequential(*layers),
        torch.zeros(batch, 64),
        loss="cross_entropy",
        optimizer=xe.SGD(0.1, momentum=0.9),
    )
    regions = {"sram": sram, "psram": "1MiB"}
    return xe.export_for_target(
        training,
        folder / "package",
        target=target,
        regions=regions,
        time_limit_s=3.0,
        objective="makespan",
    )


def run_with_simulated_dma(
    report: ExportReport, folder: Path, flags: Sequence[str] = ()
) -> list[list[str]]:
    """What each run printed."""
    package = report.package
    name, macro = package.name, package.macro
    given = arguments(package, Entry.TRAIN_STEP)
    regions = [f"{region}, sizeof {region}" for region in package.regions]
    text = (HERE / "simulated_dma.c").read_text()
    parts = {
        "PACKAGE_HEADER": f'"{name}.h"',
        "CHANNELS": f"{macro}_DMA_CHANNELS",
        "MOST": f"((uint32_t){macro}_DMA_MOST_COPIES)",
        "ARENAS": "\n".join(
            f"static _Alignas(16) uint8_t {region}[{size}];"
            for region, size in package.regions.items()
        ),
        "INPUTS": "\n".join(
            f"static {one.c_type} in_{one.name}[{one.count}];" for one in given if not one.is_result
        ),
        "FILL": "\n  ".join(filled(one) for one in given if not one.is_result),
        "CTX": f"{name}_ctx",
        "DMA": f"{name}_dma",
        "INIT": f"{name}_init(&ctx, {', '.join(regions)}, {macro}_PLAN_HASH)",
        "RESET": f"{name}_state_reset(&ctx)",
        "USE": f"{name}_use_dma",
        "STEP": f"{name}_train_step(&ctx, {', '.join(handed(one) for one in given)})",
        "SAVE": f"{name}_checkpoint_save",
        "RUNS": f"{RUNS}u",
    }
    defines = "\n".join(
        "#define {} {}".format(key, value.replace("\n", " \\\n")) for key, value in parts.items()
    )
    main = folder / "main.c"
    main.write_text(f"{defines}\n{text}")
    build_program(
        report.directory,
        package,
        Build(main, ["-Wall", "-Wextra", "-DXE_SEMIHOSTING_FILES", *flags]),
        folder / "program",
    )
    done = run_program(folder / "program", package.target)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


def filled(one: Argument) -> str:
    value = (
        "i % 4"
        if one.allowed
        else "(float)((random = random * 1664525u + 1013904223u) >> 16) / 65536.0f"
    )
    return f"for (unsigned i = 0; i < {one.count}u; i++) in_{one.name}[i] = {value};"


def handed(one: Argument) -> str:
    if one.is_result:
        return "&loss" if one.model_name == "loss" else "NULL"
    return f"in_{one.name}"


def check(report: ExportReport, folder: Path) -> None:
    package = report.package
    assert package.channels == (("psram", "sram"), ("sram", "psram"))
    by_memcpy, *by_dma = run_with_simulated_dma(report, folder)
    assert len(by_dma) == RUNS - 1
    assert {tuple(row[:2]) for row in by_dma} == {tuple(by_memcpy[:2])}
    assert {row[2] for row in by_dma} == {by_dma[0][2]}
    assert by_memcpy[2] == "0" < by_dma[0][2]
    assert is_copied_while_it_computes(report)


def is_copied_while_it_computes(report: ExportReport) -> bool:
    program = report.package.functions[Entry.TRAIN_STEP]
    actions = in_transfers(program, report.package.channels)
    left: dict[tuple[str, str], int] = {}
    for action in actions:
        match action:
            case Start():
                left[action.channel] = left.get(action.channel, 0) + 1
            case Wait():
                left[action.channel] = action.pending
            case Run() if any(left.values()):
                return True
    return False


def test_every_delay_of_the_dma_leaves_the_same_bits(tmp_path: Path) -> None:
    need_tools("host")
    check(exported(tmp_path, "host", 4, "44KiB"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m55", "rv32imafc"])
@pytest.mark.parametrize(("batch", "sram"), [(4, "44KiB"), (8, "48KiB")])
def test_it_does_on_emulated_boards(target: str, batch: int, sram: str, tmp_path: Path) -> None:
    need_tools(target)
    check(exported(tmp_path, target, batch, sram), tmp_path)
