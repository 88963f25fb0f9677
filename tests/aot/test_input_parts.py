"""Inputs whose columns index different tables: C refuses what PyTorch refuses, place by place."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import SANITIZED, Session
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.errors import InvalidDataError, InvalidInputError

ROWS = (3, 6)
BATCH, COLUMNS = 2, 4
OK, ERANGE = 0, -9


class Categories(nn.Module):
    """Two tables looked up by the columns 0 and 3, and the columns 1 and 2, which have any numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList([nn.Embedding(rows, 4) for rows in ROWS])
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.tables[0](x[:, 0]) + self.tables[1].weight[x[:, 3]]
        return self.out(found + x[:, 1:3].sum(1, keepdim=True) / 100)


def training() -> xe.Training:
    return xe.training_step(Categories(), torch.zeros(BATCH, COLUMNS, dtype=torch.int64))


def batches() -> list[tuple[np.ndarray, bool]]:
    """Batches with one number in one place, and whether PyTorch takes them."""
    made = []
    for place in np.ndindex(BATCH, COLUMNS):
        for value in (-7, -6, -1, 2, 3, 5, 6, 2**40):
            x = np.zeros((BATCH, COLUMNS), np.int64)
            x[place] = value
            try:
                Categories()(torch.tensor(x))
            except IndexError:
                made.append((x, False))
            else:
                made.append((x, True))
    return made


def test_data_are_refused_by_their_column(tmp_path: Path) -> None:
    x = np.tile([[0, 9, 9, 0], [2, 9, 9, 5], [1, 9, 9, 4]], (2, 1))
    np.savez(tmp_path / "good.npz", x=x, y=np.zeros(6, np.int64))
    assert xe.training_data(training(), str(tmp_path / "good.npz")).samples == 6
    for dtype in ("uint8", "int8", "uint64", "bool"):
        np.savez(tmp_path / "typed.npz", x=(x % 2).astype(dtype), y=np.zeros(6, np.int64))
        assert xe.training_data(training(), str(tmp_path / "typed.npz")).samples == 6
    x[4, 0] = 4
    np.savez(tmp_path / "bad.npz", x=x, y=np.zeros(6, np.int64))
    with pytest.raises(InvalidDataError, match=r"x must be in 0\.\.2 at \(0,\), got 4 in sample 4"):
        xe.training_data(training(), str(tmp_path / "bad.npz"))


def test_a_package_refuses_what_lies_outside_in_its_place(tmp_path: Path) -> None:
    need_tools("host")
    made = training()
    options = ExportOptions("host", parse_regions("sram=64KiB"), learning_rate=0.01)
    report = export_step(made.source.training, made.step, options, tmp_path / "out")
    header = next((tmp_path / "out").glob("*.h")).read_text()
    assert "each 0..2 at [..., 0], -6..5 at [..., 3]" in header
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == OK
    none = [None] * len(report.leading.program.interface.results)
    for x, is_taken in batches():
        for entry, more in (("train_step", [np.array([0, 1])]), ("eval", [])):
            results = none if more else [None]
            assert session.call(entry, x, *more, *results) == (OK if is_taken else ERANGE), x


class Solve(nn.Module):
    """A system of equations whose factors are trained, and whose exchanges of rows are an input."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.eye(3) + torch.ones(3, 3) / 8)

    def forward(self, x: torch.Tensor, exchanges: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lu_solve(self.factors, exchanges, x)


def test_exchanges_that_name_no_row_are_refused(tmp_path: Path) -> None:
    """PyTorch leaves them to LAPACK, which reads and writes anywhere; the kernel takes the nearest."""
    need_tools("host")
    given = torch.ones(3, 2), torch.ones(3, dtype=torch.int32)
    made = xe.training_step(Solve(), given, loss="mse")
    lowered = xe.lower(made)
    step = xe.build(lowered, xe.plan(xe.make_problem(lowered, costs="roofline")))
    options = ExportOptions("host", parse_regions("sram=64KiB"), learning_rate=0.01)
    report = export_step(made.source.training, made.step, options, tmp_path / "out")
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == OK
    x = np.ones((3, 2), np.float32)
    none = [None] * len(report.leading.program.interface.results)
    for exchange in (-1, 0, 1, 2, 3, 4, 2**31 - 1):
        exchanges, inside = np.array([2, exchange, 3], np.int32), 1 <= exchange <= 3
        assert session.call("train_step", x, exchanges, x, *none) == (OK if inside else ERANGE)
        if inside:
            assert np.isfinite(step.step(x, exchanges, x))
        else:
            with pytest.raises(InvalidInputError, match=r"exchanges must be in 1\.\.3, got"):
                step.step(x, exchanges, x)


class FromOne(nn.Module):
    """Tables of one row and of three, whose rows are counted from 1, and from -9."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.three = nn.Embedding(1, 3), nn.Embedding(3, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.one(a) + self.three(b - 1) + self.three(c + 9)


def test_the_self_test_draws_what_an_input_may_have(tmp_path: Path) -> None:
    need_tools("host")
    made = xe.training_step(FromOne(), tuple(torch.tensor([n, n]) for n in (0, 1, -9)))
    options = ExportOptions("host", parse_regions("sram=64KiB"), learning_rate=0.01)
    report = export_step(made.source.training, made.step, options, tmp_path / "out")
    source = (tmp_path / "out" / f"{report.package.name}_selftest.c").read_text()
    drawn = [
        line.rpartition("] = ")[2] for line in source.splitlines() if "_draw(&random) %" in line
    ]
    name = report.package.name
    assert drawn == [
        f"(int64_t)({name}_draw(&random) % 1u);",
        f"(int64_t)(1 + (int32_t)({name}_draw(&random) % 2u));",
        f"(int64_t)(-8 + (int32_t)({name}_draw(&random) % 2u));",
        f"(int64_t)({name}_draw(&random) % 3u);",
    ]
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert done.returncode == 0, done.stderr
