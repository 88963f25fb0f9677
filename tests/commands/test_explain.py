"""``explain`` answers from saved files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.in_process import run_command
from tests.commands.shown.command_page import PAGE
from tests.explain.plans import chain_plan
from tests.solvers.samples.networks import chain, single
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.session.plans.plan_file import SavedPlan, write_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return chain_plan()


@pytest.fixture
def saved(plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    write_plan(SavedPlan("", plan, {}, 0, {"a0": ("body.0.out",)}), path)
    return path


def test_a_saved_plan_is_explained(plan: Plan, saved: Path) -> None:
    done = run_command("explain", str(saved), "--solve-again", "0", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["value"] == pytest.approx(plan.simulation.cost_us)
    peaks = {one["device"]: one["peak_bytes"] for one in document["devices"]}
    assert peaks == plan.simulation.peak_bytes


def test_the_reports_have_the_keys_that_the_page_names(saved: Path) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for command, given in (("explain", ("--solve-again", "0")), ("compare", (str(saved),))):
        found = json.loads(run_command(command, str(saved), *given, "--json", "-").stdout)
        (row,) = [line for line in lines if line.startswith(f"| `{command}` |")]
        named = row.split("|")[2].partition(";")[0]
        assert set(found) == {name.strip("` ") for name in named.split(",")}


def test_a_tensor_is_found_by_the_name_of_the_model(saved: Path) -> None:
    done = run_command("explain", str(saved), "body.0.out")
    assert done.returncode == 0, done.stderr
    assert "body.0.out (a0)" in done.stdout


def test_a_schedule_needs_its_problem(plan: Plan, tmp_path: Path) -> None:
    schedule, problem = tmp_path / "schedule.json", tmp_path / "problem.json"
    write_schedule(plan.schedule, schedule)
    write_problem(plan.problem, problem)
    given = ("explain", str(schedule), "--solve-again", "0")
    done = run_command(*given)
    assert done.returncode == 2
    assert "--problem" in done.stderr
    assert run_command(*given, "--problem", str(problem)).returncode == 0
    write_problem(single(chain(3), 0.9), problem)
    assert run_command(*given, "--problem", str(problem)).returncode == 2


def test_a_solved_problem_is_saved_as_a_plan(plan: Plan, tmp_path: Path) -> None:
    problem, saved = tmp_path / "problem.json", tmp_path / "plan.json"
    write_problem(plan.problem, problem)
    given = ("--solver", "greedy", "--save-plan", str(saved))
    assert run_command("solve", str(problem), *given).returncode == 0
    assert run_command("explain", str(saved), "--solve-again", "0").returncode == 0


def test_two_plans_are_compared(plan: Plan, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    write_plan(SavedPlan("", chain_plan(ratio=1.0), {}, 0), other)
    done = run_command("compare", str(saved), str(other), "--json", "-")
    assert done.returncode == 0, done.stderr
    figures = {one["what"]: one for one in json.loads(done.stdout)["figures"]}
    assert figures["recomputed_ops"]["before"] == plan.schedule.recomputed_ops > 0
    assert figures["recomputed_ops"]["after"] == 0


def test_a_report_is_written_whole_or_refused_first(saved: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    given = ("explain", str(saved), "--solve-again", "0", "--report")
    assert run_command(*given, str(report)).returncode == 0
    assert report.read_text(encoding="utf-8").endswith("</html>")
    assert run_command(*given, str(tmp_path)).returncode == 2
