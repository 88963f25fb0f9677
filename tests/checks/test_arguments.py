"""Arguments of a wrong type are refused by name, before anything happens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tvm_xengine as xe
from tvm_xengine.checks.arguments import checked
from tvm_xengine.scheduling.platform import Platform

if TYPE_CHECKING:
    import torch

WRONG = object()
"""Of a type that no function takes."""


@checked
def takes(
    platform: Platform | None = None,
    budget: str | int | float | Mapping[str, int] | None = None,
    time_limit_s: float = 1.0,
    seed: int = 0,
    names: Sequence[str] = (),
    path: str | Path = "",
    is_on: bool = True,
    progress: Callable[[str], None] | None = None,
    module: torch.nn.Module | None = None,
    anything: Any = None,
) -> str:
    return "taken"


@pytest.mark.parametrize(
    "given",
    [
        {"budget": 3},
        {"budget": 0.5},
        {"budget": {"cpu": 3}},
        {"time_limit_s": 3},
        {"time_limit_s": np.float32(3)},
        {"seed": np.int64(3)},
        {"names": {"a"}},
        {"names": "a"},
        {"path": Path("a")},
        {"progress": print},
        {"module": 3},
        {"anything": WRONG},
        {"platform": None},
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_an_annotation_names_is_taken(given: dict[str, Any]) -> None:
    assert takes(**given) == "taken"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"platform": "cpu"}, "a Platform or None for platform, got 'cpu'"),
        (
            {"budget": [1]},
            r"mapping from a text to a whole number or None for budget, got \[1\]",
        ),
        ({"budget": True}, "for budget, got True"),
        ({"time_limit_s": "3"}, "a number for time_limit_s, got '3'"),
        ({"time_limit_s": 1j}, "a number for time_limit_s, got 1j"),
        ({"seed": 1.5}, "a whole number for seed, got 1.5"),
        ({"seed": True}, "a whole number for seed, got True"),
        ({"names": 3}, "a sequence, each a text for names, got 3"),
        ({"path": 3}, "a text or a path for path, got 3"),
        ({"is_on": 1}, "True or False for is_on, got 1"),
        ({"progress": "x"}, "a function or None for progress, got 'x'"),
        ({"seed": "x" * 100}, r"got 'x+\.\.\.x+' \(str\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_anything_else_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=f"^expected .*{said}"):
        takes(**given)


def test_a_signature_and_its_errors_stay() -> None:
    assert next(iter(inspect.signature(takes).parameters)) == "platform"
    with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
        takes(bugdet=3)  # type: ignore[call-arg]


FIRST = {
    xe.lower: "training",
    xe.make_problem: "lowered",
    xe.plan: "problem",
    xe.build: "lowered",
    xe.fit: "step",
    xe.evaluate: "step",
    xe.export_c: "lowered",
    xe.plan_of_schedule: "problem",
}


@pytest.mark.parametrize("function", FIRST, ids=lambda function: function.__name__)
def test_a_stage_takes_what_the_stage_before_it_returns(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    with pytest.raises(TypeError, match=f"for {FIRST[function]}, got <object"):
        function(**dict.fromkeys(required, WRONG))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clip_norm", "a"),
        ("clip_value", [1]),
        ("micro_batches", "2"),
        ("freeze", 3),
        ("train", 3),
        ("groups", ["x"]),
        ("precision", 16),
        ("seed", 0.5),
        ("batch_size", "8"),
        ("num_classes", 2.5),
    ],
)
def test_options_of_a_training_step_are_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"for {option}, got "):
        xe.training_step("mlp", **{option: value})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("platform", 3, "for platform, got 3"),
        ("budget", [1], "for budget"),
        ("costs", "guessed", "unknown costs 'guessed', expected one of .*measured"),
        ("time_limit_s", "1 min", "for time_limit_s, got '1 min'"),
        ("pin", 3, "for pin, got 3"),
        ("cache", 3, "for cache, got 3"),
    ],
)
def test_options_of_compile_are_refused_by_name(option: str, value: object, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        xe.compile("mlp", **{option: value})


@pytest.mark.parametrize("made", [lambda: xe.SGD("x"), lambda: xe.Adam(0.1, betas=3)])
def test_options_of_optimizers_are_numbers(made: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"a number for lr, got 'x'|each a number for betas, got 3"):
        made()
