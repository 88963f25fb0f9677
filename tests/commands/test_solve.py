"""``solve`` needs no compiler, and its schedule is one that ``train`` can run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.in_process import run_command
from tests.solvers.samples.networks import chain, single
from tests.solvers.test_constraints import two_devices
from tvm_xengine.scheduling.problem import read_problem, write_problem
from tvm_xengine.scheduling.schedule import read_schedule
from tvm_xengine.scheduling.simulate import simulate


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    write_problem(single(chain(6), 0.7), path)
    return path


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--solver", "greedy"),
        ("--solver", "tight", "--backend", "highs", "--gap", "0.1"),
        pytest.param(("--solver", "checkmate", "--backend", "highs"), marks=pytest.mark.slow),
        ("--budget-ratio", "0.8"),
    ],
)
def test_a_saved_problem_is_solved(options: tuple[str, ...], problem: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    saved = ("--save-schedule", str(schedule), "--time-limit", "30")
    done = run_command("solve", str(problem), *options, *saved, "--json", "-")
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    found = simulate(read_problem(problem), read_schedule(schedule), enforce_budgets=False)
    assert numbers["cost_us"] == pytest.approx(found.cost_us)


def test_a_saved_problem_keeps_its_constraints(tmp_path: Path) -> None:
    from dataclasses import replace

    from tvm_xengine.scheduling.constraints import Constraints

    path = tmp_path / "problem.json"
    write_problem(replace(two_devices(), constraints=Constraints({"b": "slow"})), path)
    done = run_command("solve", str(path), "--time-limit", "2", "--json", "-")
    assert json.loads(done.stdout)["devices"][0]["ops"] >= 1


def test_solving_loads_no_compiler(problem: Path) -> None:
    program = (
        "import sys; from tvm_xengine.commands.entry import main\n"
        f"code = main(['solve', {str(problem)!r}, '--solver', 'greedy', '--quiet'])\n"
        "assert code == 0 and not {'tvm', 'torch', 'onnx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--budget", "gpu=1MiB"), "budgets are given for gpu, but the platform has"),
        (
            ("--budget", "d0=64"),
            "bytes on d0 while it runs (inputs, outputs, workspace, state that must",
        ),
        (("--solver", "tight", "--backend", "cp-sat"), "highs or scip or gurobi, got 'cp-sat'"),
    ],
)
def test_what_cannot_be_solved_is_a_sentence(
    options: tuple[str, ...], said: str, problem: Path
) -> None:
    assert said in run_command("solve", str(problem), "--time-limit", "1", *options).refusal()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "expected a problem of schema 1"),
        ("nothing", "problem.json: the problem is not valid JSON"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_problem_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    if text is not None:
        path.write_text(text)
    assert said in run_command("solve", str(path)).refusal()
