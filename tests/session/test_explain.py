"""A plan explains itself in the names of the model it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tvm_xengine as xe
from tvm_xengine.session.plans.plan_file import read_plan


@pytest.fixture(scope="module")
def plan() -> xe.StepPlan:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    training = xe.training_step(model, torch.zeros(4, 6), loss="cross_entropy")
    problem = xe.make_problem(xe.lower(training), costs="roofline")
    return xe.plan(problem, time_limit_s=2.0, solver="greedy")


def test_parameters_and_layers_have_the_names_of_the_module(plan: xe.StepPlan) -> None:
    found = plan.explain("2.weight")
    assert [one.label for one in found.tensors] == ["2.weight"]
    labels = {one.label for one in plan.explain().tensors}
    assert {"0.weight", "0.bias", "2.weight", "2.weight velocity"} <= labels
    assert {one.layer for one in plan.explain().tensors if one.label == "0.bias"} == {"0"}


def test_the_names_are_in_the_saved_plan(plan: xe.StepPlan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    names = read_plan(tmp_path / "plan.json").names
    assert ("0.weight",) in names.values()
    assert names == plan.names


def test_the_report_and_the_text_have_the_same_numbers(plan: xe.StepPlan, tmp_path: Path) -> None:
    plan.write_report(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    found = plan.explain()
    assert json.loads(found.to_json())["value"] == plan.plan.simulation.cost_us
    for tensor in found.tensors:
        assert f'data-name="{tensor.label}"' in page


def test_a_name_of_a_wrong_type_is_refused(plan: xe.StepPlan) -> None:
    with pytest.raises(TypeError, match="about"):
        plan.explain(3)  # type: ignore[arg-type]
