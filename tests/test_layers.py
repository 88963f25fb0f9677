"""The walls between the parts that know TVM and those that do not."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLAIN = sorted(
    {
        "tvm_xengine.scheduling.arena.plan",
        "tvm_xengine.files.atomic_write",
        "tvm_xengine.scheduling.sizes",
        "tvm_xengine.errors",
        "tvm_xengine.scheduling.graph",
        "tvm_xengine.scheduling.arena.packing",
        "tvm_xengine.planning.planner",
        "tvm_xengine.scheduling.platform",
        "tvm_xengine.scheduling.platform_file",
        "tvm_xengine.scheduling.problem",
        "tvm_xengine.report.summary",
        "tvm_xengine.report.tables",
        "tvm_xengine.scheduling.residency",
        "tvm_xengine.scheduling.schedule",
        "tvm_xengine.scheduling.simulate",
    }
    | {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in (ROOT / "tvm_xengine" / "solvers").rglob("*.py")
        if path.stem != "worker"  # the workers' entry scripts import one solver each
    }
)


def loaded_after_importing(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_problems_solvers_and_the_validator_never_import_tvm() -> None:
    assert not {"tvm", "tvm_ffi"} & loaded_after_importing(*PLAIN)


@pytest.mark.slow
def test_the_wall_can_be_seen_through() -> None:
    assert "tvm" in loaded_after_importing("tvm_xengine.relax_ir.extract")


@pytest.mark.parametrize(
    "module", ["tvm_xengine", "tvm_xengine.solvers", "tvm_xengine.commands.dispatch"]
)
def test_importing_the_front_door_loads_no_solver_library_and_no_framework(module: str) -> None:
    heavy = {"tvm", "torch", "onnx", "highspy", "pyscipopt", "gurobipy", "ortools", "sklearn"}
    assert not heavy & loaded_after_importing(module)


def test_no_room_holds_more_modules_than_one_remembers() -> None:
    rooms = [ROOT / room for room in ("tvm_xengine", "passes", "cost_models")]
    folders = {path.parent for room in rooms for path in room.rglob("*.py")}
    assert {f for f in folders if len(set(f.glob("*.py")) - {f / "__init__.py"}) > 15} == set()


def test_every_room_says_what_it_is_for() -> None:
    rooms = [ROOT / room for room in ("tvm_xengine", "passes", "cost_models")]
    empty = [
        path
        for room in rooms
        for path in room.rglob("__init__.py")
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert empty == []


def test_every_room_has_its_tests() -> None:
    rooms = {path.parent.name for path in (ROOT / "tvm_xengine").glob("*/__init__.py")}
    assert rooms - {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")} == set()
