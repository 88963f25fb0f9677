"""Every schema accepts what the program writes; what it refuses, its reader refuses as well."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.commands.in_process import run_command
from tests.docs.schemas.files import FOLDER, schemas, texts
from tests.docs.schemas.formats import FORMATS
from tests.docs.schemas.reports import REPORTS
from tests.docs.schemas.samples import READABLE, Document, damaged
from tvm_xengine.doctor.check import Check, State
from tvm_xengine.doctor.diagnosis import Diagnosis

_LEAST_DAMAGES = 20
"""Fewer would mean that a sample is empty."""


def faults(name: str, document: Document) -> list[str]:
    """What a schema finds wrong."""
    found = Draft202012Validator(schemas()[name]).iter_errors(document)
    return [f"{one.json_path}: {one.message}" for one in found]


def report(*arguments: str) -> Document:
    """What a command writes with ``--json``."""
    done = run_command(*arguments, "--json", "-")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_the_files_are_those_that_the_types_give() -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert there == texts(), "run python -m tests.docs.schemas"


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schemas()[name])


def test_every_format_that_is_read_has_a_sample() -> None:
    assert set(READABLE) == set(FORMATS)


@pytest.mark.parametrize("name", READABLE)
def test_a_schema_accepts_a_real_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / READABLE[name].file
    READABLE[name].write(path)
    documents = READABLE[name].load(path)
    assert documents
    for document in documents:
        assert faults(name, document) == []
        assert READABLE[name].takes(document, tmp_path)


@pytest.mark.parametrize("at_most", [200, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READABLE)
def test_what_a_schema_refuses_is_refused_by_the_reader(
    name: str, at_most: int, tmp_path: Path
) -> None:
    path = tmp_path / READABLE[name].file
    READABLE[name].write(path)
    seen: Counter[bool] = Counter()
    for document in READABLE[name].load(path)[:2]:
        damages = list(damaged(document))
        for what, one in damages[:: 1 + len(damages) // at_most]:
            refused = bool(faults(name, one))
            seen[refused] += 1
            assert not (refused and READABLE[name].takes(one, tmp_path)), what
    assert seen[True] > _LEAST_DAMAGES


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / READABLE["plan"].file
    READABLE["plan"].write(path)
    return path


def test_reports_of_a_plan_are_as_their_schemas_say(saved: Path, tmp_path: Path) -> None:
    problem = tmp_path / "problem.json"
    READABLE["problem"].write(problem)
    assert faults("report-plan", report("solve", str(problem), "--solver", "greedy")) == []
    assert faults("report-compare", report("compare", str(saved), str(saved))) == []
    explained = report("explain", str(saved), "--solve-again", "1")
    assert explained["tensors"]
    assert faults("report-explain", explained) == []
    about = report("explain", str(saved), "*")
    assert about["ops"]
    assert faults("report-explain", about) == []


@pytest.mark.slow
def test_reports_of_the_door_are_as_their_schemas_say(tmp_path: Path) -> None:
    """Those of a model: estimate, pareto, train, eval."""
    given = ("mlp", "--batch", "4")
    assert faults("report-estimate", report("estimate", *given, "--fits", "1MiB")) == []
    front = report(
        "pareto", *given, "--costs", "roofline", "--ratios", "1", "0", "--solver", "greedy"
    )
    assert [point["ratio"] for point in front["points"]] == [1.0, 0.0]
    assert faults("report-pareto", front) == []
    state = tmp_path / "state.safetensors"
    planned = ("--costs", "roofline", "--solver", "greedy")
    trained = report("train", *given, *planned, "--steps", "2", "--save", str(state))
    assert faults("report-train", trained) == []
    assert faults("report-eval", report("eval", *given, "--state", str(state))) == []


@pytest.mark.slow
def test_the_report_and_the_plan_of_a_package_are_as_their_schemas_say(tmp_path: Path) -> None:
    out = tmp_path / "package"
    given = ("--target", "host", "--arena-bytes", "1MiB", "-o", str(out), "--batch", "4")
    assert faults("report-export", report("export", "mlp", *given)) == []
    (plan,) = out.glob("*_plan.json")
    assert faults("package-plan", json.loads(plan.read_text(encoding="utf-8"))) == []


def test_a_report_with_a_fault_is_refused() -> None:
    (fault,) = faults("report-doctor", {"is_healthy": "yes", "checks": []})
    assert "$.is_healthy" in fault
    (fault,) = faults("report-doctor", {"checks": []})
    assert "is_healthy" in fault


def test_the_report_of_doctor_is_as_its_schema_says() -> None:
    checks = (
        Check("solvers", "highs", State.WORKS, "1.0", is_required=True),
        Check("packages", "onnx", State.MISSING, "", remedy="pip install onnx"),
    )
    assert faults("report-doctor", json.loads(json.dumps(Diagnosis(checks).document()))) == []


def test_the_page_lists_every_schema() -> None:
    page = (FOLDER.parent / "file_formats.md").read_text(encoding="utf-8")
    for name, one in {**FORMATS, **REPORTS}.items():
        cells = (one.title, one.written_by, one.read_by or "-")
        assert f"| {' | '.join(cells)} | [schema](schemas/{name}.schema.json) |" in page
