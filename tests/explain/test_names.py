"""People find tensors by the model's names and by layers."""

from __future__ import annotations

import pytest

from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.explain.names import Names, names_of_ops, source_names
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


def test_a_gradient_of_a_slice_belongs_to_its_parameter_and_not_to_what_it_reads() -> None:
    graph = OpGraph(
        tensors=(
            Tensor("conv1_weight", 64, Role.PARAMETER),
            Tensor("conv2_weight", 64, Role.PARAMETER),
            Tensor("a", 64),
            Tensor("loss", 64),
            Tensor("conv2_weight_grad_1of2", 64),
            Tensor("conv2_weight_grad_joined", 64),
        ),
        ops=(
            Op("conv1", "k0", ("conv1_weight",), ("a",)),
            Op("conv2", "k1", ("a", "conv2_weight"), ("loss",)),
            Op("slice", "k2", ("a",), ("conv2_weight_grad_1of2",)),
            Op("join", "k3", ("conv2_weight_grad_1of2",), ("conv2_weight_grad_joined",)),
        ),
        outputs=("loss",),
    )
    layer = Names(graph).layer
    assert layer["slice"] == layer["join"] == layer["conv2"] == "conv2"
    assert layer["conv1"] == "conv1"


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


def test_an_op_without_parameters_belongs_to_the_module_whose_source_computes_it() -> None:
    of_model = {"a": ("a", "net.py:7", "in body.0"), "loss": ("loss", "net.py:9")}
    graph = OpGraph(
        tensors=(Tensor("x", 64, Role.BATCH), Tensor("a", 64), Tensor("a_grad", 64)),
        ops=(
            Op("a", "k0", ("x",), ("a",)),
            Op("a_grad", "k1", ("a",), ("a_grad",)),
        ),
        outputs=("a_grad",),
    )
    names = Names(graph, of_model)
    assert [names.layer[one] for one in ("a", "a_grad")] == ["body.0", "body.0"]
    assert names.names_of("a") == ("a", "a", "a", "net.py:7", "body.0", "net.py:7")


def test_a_fused_op_has_the_line_of_the_layer_whose_parameters_it_reads() -> None:
    of_model = {
        "p0": ("features.0.weight",),
        "p0_out": ("p0_out", "net.py:5"),
        "conv": ("conv", "other.py:1"),
    }
    graph = OpGraph(
        tensors=(Tensor("x", 64), Tensor("p0_out_w", 64, Role.PARAMETER), Tensor("conv_add", 64)),
        ops=(Op("make", "k", (), ("x",)), Op("conv_add", "k0", ("x", "p0_out_w"), ("conv_add",))),
        outputs=("conv_add",),
    )
    assert Names(graph, of_model).line("conv_add") == "net.py:5"


def test_names_of_a_variable_leave_out_what_is_not_known() -> None:
    assert source_names("a", "net.py:1", "body.0") == ("a", "net.py:1", "in body.0")
    assert source_names("a", "", "") == ("a",)


def test_an_op_without_a_line_has_that_of_its_layer_if_there_is_one_only() -> None:
    def lines(second: str) -> list[str]:
        of_model = {"a": ("a", "net.py:7", "in body"), "b": ("b", second, "in body")}
        graph = OpGraph(
            tensors=tuple(Tensor(name, 64) for name in ("a", "b", "other")),
            ops=(
                Op("a", "k0", (), ("a",)),
                Op("b", "k1", ("a",), ("b",)),
                Op("other", "k2", ("b",), ("other",)),
            ),
            outputs=("other",),
        )
        names = Names(graph, of_model)
        return [names.layer["other"], names.line("other")]

    assert lines("net.py:7") == ["body", "net.py:7"]
    assert lines("net.py:8") == ["body", ""]


def test_a_gradient_is_named_after_its_parameter() -> None:
    graph = OpGraph(
        tensors=(
            Tensor("p0", 64, Role.PARAMETER),
            *(Tensor(name, 64) for name in ("p0_grad", "p0_grad_sum_2", "a_grad", "p0_gradual")),
        ),
        ops=(Op("made", "k", ("p0",), ("p0_grad", "p0_grad_sum_2", "a_grad", "p0_gradual")),),
        outputs=("p0_grad",),
    )
    names = Names(graph, {"p0": ("features.0.weight",)})
    labels = [names.label(name) for name in ("p0_grad", "p0_grad_sum_2", "a_grad", "p0_gradual")]
    weight = "features.0.weight"
    assert labels == [f"{weight} grad", f"{weight} grad_sum_2", "a_grad", "p0_gradual"]


def test_ops_come_from_where_the_first_of_their_parts_that_is_known_comes_from() -> None:
    of_source = {
        "block": source_names("block", "net.py:7", "block"),
        "block_2": source_names("block_2", "net.py:8", "block", 2),
    }
    origins = {"conv_relu": ("block", "relu"), "conv_relu_1": ("lv", "block_2", "relu")}
    ops = ("conv_relu", "conv_relu_1_2of4", "block_2_weight_grad", "conv_relu_2")
    found = names_of_ops(ops, origins, of_source)
    assert {op: names[1:] for op, names in found.items()} == {
        "conv_relu": ("net.py:7", "in block"),
        "conv_relu_1_2of4": ("net.py:8", "in block", "call 2"),
        "block_2_weight_grad": ("net.py:8", "in block", "call 2"),
    }


def test_two_uses_of_a_parameter_are_told_apart_by_module_line_and_call() -> None:
    graph = OpGraph(
        tensors=(
            Tensor("w", 64, Role.PARAMETER),
            *(Tensor(name, 64) for name in ("a", "b", "c")),
        ),
        ops=(
            Op("a", "k", ("w",), ("a",)),
            Op("b", "k", ("a", "w"), ("b",)),
            Op("c", "k", ("b", "w"), ("c",)),
        ),
        outputs=("c",),
    )
    of_model = {
        "w": ("embedding.weight",),
        "a": source_names("a", "net.py:3", "embedding"),
        "b": source_names("b", "net.py:5", "embedding", 2),
        "c": source_names("c", "net.py:9", "head"),
    }
    names = Names(graph, of_model)
    assert [names.place(op) for op in "abc"] == [
        "embedding, net.py:3",
        "embedding, net.py:5, call 2",
        "head, net.py:9",
    ]
    assert names.matching("net.py:5") == ("b",)
    assert names.layer["w"] == "embedding"
