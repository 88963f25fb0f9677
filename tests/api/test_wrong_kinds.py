"""A value of the wrong kind is refused at the door, in a sentence that names the parameter."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.api.signatures import public
from tvm_xengine.data.arrays import Data

WRONG: dict[str, object] = {
    "scores": 3.0,
    **dict.fromkeys(("time_limit_s", "gap_ratio", "clip_norm", "clip_value", "lr"), "x"),
    **dict.fromkeys(("epochs", "micro_batches", "seed", "steps", "budget_bytes"), 1.5),
    **dict.fromkeys(("max_steps", "every_steps", "alignment_bytes"), "many"),
    **dict.fromkeys(("train", "freeze", "keep", "recompute", "batch", "hyper"), 7),
    **dict.fromkeys(("path", "directory", "cache", "tuned", "platform", "model"), 3.5),
    **dict.fromkeys(("force", "guard", "nesterov", "maximize", "amsgrad"), "yes"),
    **dict.fromkeys(("centered", "decoupled"), 1),
    **dict.fromkeys(("budget", "pin", "groups", "regions", "updates", "metrics"), 3j),
    **dict.fromkeys(("target", "folder", "costs", "solver", "backend", "objective", "name"), 4),
    **dict.fromkeys(("layout", "optimize"), 4),
    **dict.fromkeys(
        ("text", "source", "func_name", "dtype", "home", "host", "src", "dst", "engine"), b"text"
    ),
    **dict.fromkeys(("step", "training", "lowered", "plan", "problem", "mod"), "a step"),
    **dict.fromkeys(("betas", "devices", "links", "kernels", "class_weights"), "0.9"),
    "loss": 3,
    "optimizer": 3,
    "precision": 16,
    "progress": "loud",
    "on_progress": "loud",
    "lr_schedule": 0.1,
    "data": 5,
    "validation": object(),
    "checkpoint": 1,
    "resume": 2.5,
    "state": [1],
    "stores": "store",
    "schedule": 3,
    "axis": 1.5,
    "ignore_index": "none",
}
"""A wrong value for each parameter by its name; other numbers get a text."""

FREE = {"example_inputs", "example_targets"}
"""Whatever PyTorch takes."""


def cases() -> Iterator[tuple[str, str]]:
    """Names of public functions, and of classes that users make, with those of their parameters."""
    made_by_functions = {"Step", "StepPlan", "StepProblem", "Training", "Lowered", "XEngineError"}
    results = {"Estimate", "FitProgress", "FitResult", "PlansTogether", "StepsTogether"}
    for name, item in public():
        if name in made_by_functions | results:
            continue
        for parameter in inspect.signature(item).parameters.values():
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD and parameter.name not in FREE:
                yield name, parameter.name


@pytest.fixture(scope="module")
def right(cache: Path) -> dict[str, Any]:
    """A right value for each parameter without a default."""
    torch.manual_seed(0)
    training = xe.training_step(nn.Linear(3, 2), torch.zeros(2, 3), loss="mse")
    lowered = xe.lower(training, cache=cache)
    problem = xe.make_problem(lowered, costs="roofline")
    plan = xe.plan(problem, time_limit_s=2.0)
    return {
        "model": nn.Linear(3, 2),
        "training": training,
        "lowered": lowered,
        "problem": problem,
        "problems": {"one": problem},
        "plan": plan,
        "plans": xe.plan_together({"one": problem}, time_limit_s=2.0),
        "workloads": {},
        "step": xe.build(lowered, plan),
        "directory": "out",
        "path": "state.npz",
        "regions": {},
        "state": {},
        "schedule": "schedule.json",
        "platform": xe.processor(),
        "func_name": "main",
        "name": "mse",
        "text": "linear",
        "lr": 0.1,
        "steps": 3,
        "source": "digits",
        "scores": {"fc": 1.0},
        "mod": training.step.mod,
        "batch": ("x",),
        "target": "llvm",
        "src": "a",
        "dst": "b",
        "devices": (xe.Device("cpu", "llvm"),),
        "data": Data({"x": np.zeros((4, 3), "float32"), "y": np.zeros((4, 2), "float32")}),
    }


@pytest.mark.parametrize(("function", "parameter"), list(cases()))
def test_every_parameter_refuses_what_it_cannot_mean_by_its_name(
    function: str,
    parameter: str,
    right: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    called = getattr(xe, function)
    needed = {
        one.name: right[one.name]
        for one in inspect.signature(called).parameters.values()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    }
    wrong = WRONG.get(parameter, "x")
    # What is learned of a model comes before the options that depend on it.
    if function in ("compile", "estimate", "training_step") and parameter != "model":
        needed["example_inputs"] = torch.zeros(2, 3)
    with pytest.raises((TypeError, xe.XEngineError)) as refused:
        called(**{**needed, parameter: wrong})
    said = str(refused.value)
    assert re.search(r"expected|unknown", said), said
    assert re.search(rf"\b{parameter}\b|{re.escape(type(wrong).__name__)}", said), said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        ("compile", {"time_limit_s": "x"}, r"a number for time_limit_s, got 'x' \(str\).*=60\.0"),
        ("compile", {"time_limit_s": True}, r"a number for time_limit_s, got True \(bool\)"),
        ("compile", {"budget": [1]}, r"for budget, got \[1\] \(list\)"),
        ("compile", {"budget": {"cpu": [1]}}, r"for budget, got {'cpu': \[1\]}"),
        ("compile", {"budget": "much"}, "much"),
        ("training_step", {"clip_norm": "a"}, "a number or None for clip_norm, got 'a'"),
        ("training_step", {"clip_norm": -1}, "clip_norm above 0, or None for no limit, got -1"),
        ("training_step", {"clip_value": float("nan")}, "clip_value above 0.*got nan"),
        ("training_step", {"micro_batches": True}, "a whole number for micro_batches, got True"),
        ("SGD", {"lr": "fast"}, r"a number for lr, got 'fast' \(str\); for example lr=0\.01"),
        ("SGD", {"lr": float("inf")}, "lr must not be negative, and finite"),
        ("Adam", {"betas": (0.9,)}, "a tuple of 2 values, each a number for betas"),
        ("plan", {"objective": "speed"}, "unknown objective 'speed', expected one of cost"),
        ("plan", {"seed": -1}, "seed from 0"),
        ("fit", {"epochs": 1.5}, r"a whole number for epochs, got 1\.5 \(float\)"),
        ("fit", {"max_steps": -1}, "max_steps"),
        ("fit", {"replan": "yes"}, "replan"),
        ("fit", {"data": "digits"}, "for data, got 'digits'"),
    ],
)
def test_a_refusal_says_what_was_expected_and_found(
    function: str, options: dict[str, Any], said: str, right: dict[str, Any], compile_step: Any
) -> None:
    known = {name: right[name] for name in ("step", "data", "problem")}
    given = {
        "compile": {"model": nn.Linear(3, 2), "example_inputs": torch.zeros(2, 3), "loss": "mse"},
        "training_step": {
            "model": nn.Linear(3, 2),
            "example_inputs": torch.zeros(2, 3),
            "loss": "mse",
        },
        "fit": {"step": known["step"], "data": known["data"]},
        "plan": {"problem": known["problem"]},
    }.get(function, {})
    with pytest.raises((TypeError, ValueError, xe.XEngineError), match=said):
        getattr(xe, function)(**{**given, **options})


def test_numbers_of_numpy_are_numbers(right: dict[str, Any]) -> None:
    options = {"time_limit_s": np.float32(2), "gap_ratio": np.float64(0.5), "seed": np.int64(3)}
    assert xe.plan(right["problem"], **options).plan
    budget = right["problem"].with_budget(np.float32(0.9))
    assert budget.problem == right["problem"].with_budget(float(np.float32(0.9))).problem
    assert xe.SGD(np.float32(0.5), nesterov=np.False_) == xe.SGD(0.5)


def test_methods_refuse_wrong_kinds_too(right: dict[str, Any]) -> None:
    step, plan, problem = (right[name] for name in ("step", "plan", "problem"))
    for call in (
        lambda: step.save(3),
        lambda: step.load(b"state"),
        lambda: step.guard("on"),
        lambda: step.train("on"),
        lambda: plan.save(None),
        lambda: plan.explain(3),
        lambda: plan.explain(price_s="x"),
        lambda: problem.save(1),
        lambda: problem.with_budget([1]),
        lambda: problem.with_budget_ratio("half"),
    ):
        with pytest.raises(TypeError, match=r"expected .* for .*, got"):
            call()
