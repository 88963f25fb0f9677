"""A file that cannot be written is refused before the work whose result it is to hold."""

import builtins
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.commands.in_process import run_command
from tvm_xengine.planning import question
from tvm_xengine.solvers.backends import table

QUICK = ("--costs", "roofline", "--solver", "greedy", "--time-limit", "1")


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning would be too late."""

    def plan(*_arguments: object, **_options: object) -> None:
        raise AssertionError("planned before the outputs were checked")

    monkeypatch.setattr(question, "solve", plan)


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("plan", "--json", "report.json"),
        ("plan", "--save-problem", "problem.json"),
        ("plan", "--save-schedule", "schedule.json"),
        ("plan", "--save-plan", "plan.json"),
        ("plan", "--report", "plan.html"),
        ("train", "--json", "report.json"),
        ("train", "--save", "state.npz"),
        ("train", "--checkpoint", "run.ckpt"),
        ("train", "--save-plan", "plan.json"),
        ("pareto", "--save-problem", "problem.json"),
        ("pareto", "--plot", "front.svg"),
    ],
)
def test_an_output_inside_a_file_or_over_a_folder_is_refused_first(
    command: str, option: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder" / name).mkdir(parents=True)
    for path in (tmp_path / "file" / name, tmp_path / "folder" / name):
        done = run_command(command, "mlp", *QUICK, option, str(path))
        assert str(path) in done.refusal()
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_in_place_of_a_folder_of_schedules_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "tuned").write_text("mine")
    done = run_command("tune", "mlp", "--database", str(tmp_path / "tuned"), "--trials", "2")
    assert f"{tmp_path / 'tuned'}: Not a directory" in done.refusal()


def test_a_plot_of_another_kind_is_refused_first(tmp_path: Path) -> None:
    done = run_command("pareto", "mlp", *QUICK, "--plot", str(tmp_path / "front.xyz"))
    assert "ends in one of " in done.refusal()


def test_a_missing_package_for_plots_is_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **options: object) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    done = run_command("pareto", "mlp", *QUICK, "--plot", str(tmp_path / "front.svg"))
    assert "pip install 'tvm-xengine[plot]'" in done.refusal()


@pytest.mark.parametrize("command", ["plan", "pareto", "train"])
def test_a_missing_backend_is_named_before_the_model_is_read(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "find_spec", lambda _name: None)
    done = run_command(command, "nothing.onnx", "--solver", "checkmate", "--solver-backend", "scip")
    assert "the backend scip needs pyscipopt, which is not installed" in done.refusal()


def test_a_report_may_go_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert run_command("estimate", "mlp", "--json", "/dev/null").returncode == 0
    assert json.loads(run_command("estimate", "mlp", "--json", "-").stdout)


@pytest.mark.parametrize(
    "options",
    [
        ("--save-plan", "same.json", "--json", "same.json"),
        ("--save-plan", "same.json", "--json=./same.json"),
        ("--report", "link.html", "--json", "same.json"),
        ("--json", "model.onnx"),
        ("--platform", "model.onnx", "--save-problem", "model.onnx"),
    ],
)
def test_an_output_that_would_replace_another_file_of_the_command_is_refused(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_text("mine")
    (tmp_path / "link.html").symlink_to("same.json")
    done = run_command("plan", "model.onnx", *QUICK, *options)
    assert "give each its own" in done.refusal()
    assert (tmp_path / "model.onnx").read_text() == "mine"
    assert not (tmp_path / "same.json").exists()
