"""Patterns find ops by their names and by those of their parameters."""

from __future__ import annotations

import pytest
import tvm

from tests.passes.small_step import SmallStep, two_cpus
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.constraints import Constraints

GRAPH = extract_graph(SmallStep).graph
NAMES = {"w": ("layer.weight", "tied.weight")}


def constraints(**patterns: tuple[object, ...]) -> Constraints:
    return ConstraintPatterns(model_names=NAMES, **patterns).of(GRAPH, two_cpus())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "ops"),
    [
        ("h", {"h"}),
        ("both.1", {"both"}),
        ("w", {"y", "w_new"}),
        ("layer.*", {"y", "w_new"}),
        ("tied.weight", {"y", "w_new"}),
        ("*", {"h", "both", "y", "g", "w_new"}),
    ],
)
def test_a_pattern_matches_ops_results_and_parameters(pattern: str, ops: set[str]) -> None:
    assert constraints(keep=(pattern,)).kept == ops
    assert constraints(pin=((pattern, "cpu"),)).pinned == dict.fromkeys(ops, "cpu")


def test_the_last_pin_that_matches_counts() -> None:
    pins = (("*", "cpu"), ("g", "cpu_generic"))
    assert constraints(pin=pins).pinned["g"] == "cpu_generic"
    assert constraints(pin=pins).pinned["h"] == "cpu"


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (
            {"keep": ("layer.wieght*",)},
            r"keep='layer.wieght\*' matches no op, and no tensor or input of one;"
            r" ops: .*; tensors: both\..*; parameters and inputs: layer.weight, tied.weight",
        ),
        ({"pin": (("h", "gpu"),)}, "pin=h=gpu names no device that computes; those are cpu, cpu_g"),
    ],
)
def test_a_pattern_without_use_is_refused(
    patterns: dict[str, tuple[object, ...]], said: str
) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        constraints(**patterns)


def test_what_has_no_later_use_is_not_recomputed() -> None:
    with pytest.raises(InvalidProblemError, match=r"matches y, .* both, h can be recomputed"):
        ConstraintPatterns(recompute=("y",)).repeated(SmallStep, "train_step")


def test_without_patterns_a_module_stays_as_it_is() -> None:
    repeated: tvm.IRModule = ConstraintPatterns().repeated(SmallStep, "train_step")
    assert repeated.same_as(SmallStep)
