"""People find tensors by the model's names and by layers."""

from __future__ import annotations

import pytest

from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.explain.names import Names
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor

_GRAPH = OpGraph(
    tensors=(
        Tensor("x", 64, Role.BATCH),
        Tensor("p0", 64, Role.PARAMETER),
        Tensor("p0_velocity", 64, Role.OPTIMIZER_STATE),
        Tensor("a", 64),
        Tensor("flat", 64, alias_of="a"),
        Tensor("loss", 64),
        Tensor("g", 64),
        Tensor("new_p0", 64),
        Tensor("new_v0", 64),
    ),
    ops=(
        Op("conv", "k0", ("x", "p0"), ("a",)),
        Op("ce", "k1", ("flat",), ("loss",)),
        Op("grad", "k2", ("a", "x"), ("g",)),
        Op(
            "update",
            "k3",
            ("p0", "p0_velocity", "g"),
            ("new_p0", "new_v0"),
            (("new_p0", "p0"), ("new_v0", "p0_velocity")),
            recomputable=False,
        ),
    ),
    outputs=("loss",),
)
_NAMES = Names(_GRAPH, {"p0": ("features.0.weight",)})


def test_state_is_named_after_the_parameter_it_belongs_to() -> None:
    assert _NAMES.label("p0") == "features.0.weight"
    assert _NAMES.label("p0_velocity") == "features.0.weight velocity"
    assert _NAMES.label("new_p0") == "new features.0.weight"
    assert _NAMES.label("a") == "a"


def test_ops_without_parameters_belong_to_the_layer_that_they_serve() -> None:
    layers = {name: _NAMES.layer[name] for name in ("conv", "ce", "grad", "update", "a", "g")}
    assert set(layers.values()) == {"features.0"}
    assert not _NAMES.layer["x"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("features.0.weight", ("p0",)),
        ("p0_*", ("p0_velocity",)),
        ("grad", ("grad",)),
        ("features.*", ("p0", "p0_velocity", "a", "loss", "g", "new_p0", "new_v0")),
    ],
)
def test_a_name_of_the_model_or_the_step_and_a_pattern_are_found(
    name: str, found: tuple[str, ...]
) -> None:
    assert _NAMES.matching(name)[: len(found)] == found


def test_an_unknown_name_is_refused_with_a_similar_one() -> None:
    with pytest.raises(InvalidProblemError, match=r"similar names are .*features\.0\.weight"):
        _NAMES.matching("feature.0.wieght")


def test_a_line_is_that_of_the_variable_a_name_begins_with() -> None:
    names = Names(_GRAPH, {"p0": ("features.0.weight",), "a": ("a", "net.py:7")})
    assert names.line("a") == "net.py:7"
    assert names.line("a_grad") == "net.py:7"
    assert names.line("p0") == ""
    assert "a" in names.matching("net.py:7")
