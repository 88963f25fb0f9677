"""Products whose operands lie in slow memory run in tiles: the bits are those of whole ones."""

from pathlib import Path

import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_dma import run_with_simulated_dma
from tests.oracles.exhaustive import solve_exhaustively
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.plan import in_regions, plan_step
from tvm_xengine.aot.plan.tiles import TiledKernel
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.scheduling.sizes import parse_bytes

SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


OPTIMIZERS = {"sgd": xe.SGD(0.1), "momentum": xe.SGD(0.1, momentum=0.9), "adam": xe.Adam(0.01)}


def perceptron(wide: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(32, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 4))
    )


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 3 * 3, 4)),
    )


def exported(
    folder: Path,
    model: nn.Module,
    shape: tuple[int, ...],
    sram: str | int,
    target: str = "host",
    optimizer: str = "sgd",
) -> ExportReport:
    training = xe.training_step(
        model, torch.zeros(shape), loss="cross_entropy", optimizer=OPTIMIZERS[optimizer]
    )
    regions = {"sram": sram, "psram": "1MiB"}
    return xe.export_for_target(
        *(training, folder),
        target=target,
        regions=regions,
        time_limit_s=2.0,
        objective="makespan",
    )


def without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_step, "state_in_place", lambda *_: {})
    monkeypatch.setattr(in_regions, "with_tiles", lambda form, *_: form)


def losses_and_sums(rows: list[list[str]]) -> set[tuple[str, ...]]:
    return {tuple(row[:2]) for row in rows}


def tiled(report: ExportReport) -> int:
    return sum(isinstance(one, TiledKernel) for one in report.package.kernels.values())


def test_any_delay_of_the_dma_leaves_the_same_bits(tmp_path: Path) -> None:
    """Nothing outside the arenas is touched, and nothing undefined is done."""
    need_tools("host")
    report = exported(tmp_path / "tiled", perceptron(32), (3, 32), "4KiB")
    assert report.leading.tiled_kernels >= 3
    rows = run_with_simulated_dma(report, tmp_path, SANITIZED)
    assert len(losses_and_sums(rows)) == 1
    assert rows[0][2] == "0" < rows[1][2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "whole_sram"), [("sgd", "24KiB"), ("momentum", "60KiB"), ("adam", "80KiB")]
)
def test_tiles_fit_where_whole_operands_do_not_and_leave_the_same_bits(
    optimizer: str, whole_sram: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tools("host")
    given = (perceptron(64), (4, 32))
    report = exported(tmp_path / "tiled", *given, "8KiB", optimizer=optimizer)
    assert report.leading.tiled_kernels >= 4
    rows = run_with_simulated_dma(report, tmp_path, SANITIZED)
    without_tiles(monkeypatch)
    with pytest.raises(NoScheduleError):
        exported(tmp_path / "too_small", *given, "8KiB", optimizer=optimizer)
    whole = exported(tmp_path / "whole", *given, whole_sram, optimizer=optimizer)
    assert not tiled(whole)
    assert losses_and_sums(run_with_simulated_dma(whole, tmp_path)) == losses_and_sums(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "model", "shape", "sram", "optimizer"),
    [
        ("cortex-m7", perceptron(96), (4, 32), "20KiB", "sgd"),
        ("cortex-m55", perceptron(96), (4, 32), "44KiB", "sgd"),
        ("rv32imafc", perceptron(96), (3, 32), "20KiB", "sgd"),
        ("cortex-m7", convolutions(), (2, 3, 8, 8), "40KiB", "sgd"),
        ("cortex-m7", perceptron(96), (4, 32), "20KiB", "momentum"),
    ],
)
def test_they_do_on_emulated_boards(
    target: str,
    model: nn.Module,
    shape: tuple[int, ...],
    sram: str,
    optimizer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_tools(target)
    report = exported(tmp_path / "tiled", model, shape, sram, target, optimizer)
    assert tiled(report)
    rows = run_with_simulated_dma(report, tmp_path)
    assert len(losses_and_sums(rows)) == 1
    without_tiles(monkeypatch)
    whole = exported(tmp_path / "whole", model, shape, "100KiB", target, optimizer)
    assert not tiled(whole)
    if whole.package.channels:
        assert losses_and_sums(run_with_simulated_dma(whole, tmp_path)) == losses_and_sums(rows)


@pytest.mark.slow
def test_a_plan_takes_tiles_where_they_are_predicted_to_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for whole operands, too."""
    report = exported(tmp_path / "tiled", perceptron(96), (4, 32), "48KiB", "cortex-m7")
    without_tiles(monkeypatch)
    whole = exported(tmp_path / "whole", perceptron(96), (4, 32), "48KiB", "cortex-m7")
    for entry in (Entry.TRAIN_STEP, Entry.EVAL):
        taken, other = report.functions[entry], whole.functions[entry]
        assert taken.tiled_kernels
        assert taken.plan.simulation.makespan_us < other.plan.simulation.makespan_us


@pytest.mark.slow
def test_budgets_that_are_named_work(tmp_path: Path) -> None:
    """With larger tiles than the budget has room for, which is far below what whole operands take."""
    given = (perceptron(64), (4, 32))
    with pytest.raises(NoScheduleError, match="in tiles these work: sram=") as refused:
        exported(tmp_path / "too_small", *given, "2KiB")
    size = parse_bytes(str(refused.value).partition("in tiles these work: sram=")[2].split()[0])
    assert size < 64 * 64 * 4
    assert exported(tmp_path / "named", *given, size).package.regions["sram"] <= size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "sram"), [("sgd", "2KiB"), ("sgd", "4KiB"), ("momentum", "4KiB")]
)
def test_no_schedule_of_a_small_problem_in_tiles_is_shorter(
    optimizer: str, sram: str, tmp_path: Path
) -> None:
    """One layer, its state in slow memory; the judge looks at every schedule, with every variant."""
    training = xe.training_step(
        nn.Linear(32, 24), torch.zeros(3, 32), loss="mse", optimizer=OPTIMIZERS[optimizer]
    )
    report = xe.export_for_target(
        *(training, tmp_path / "out"),
        target="cortex-m7",
        regions={"sram": sram, "psram": "1MiB"},
        time_limit_s=4.0,
        objective="makespan",
    )
    plan = report.leading.plan
    assert report.leading.tiled_kernels
    assert not plan.schedule.transfers  # so that the makespan is the sum of all times
    assert plan.step_us() == pytest.approx(solve_exhaustively(plan.problem).value)
