"""An operator that cannot be imported is refused in one sentence: which, where, and what to do."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.frontends.torch.read import from_torch_export


class _Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, edges = torch.histogram(x, 4)
        return first + torch.histogram(x, edges)[0]


class _Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).abs()


class _WithReason(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x)


def _torch_message(inner: nn.Module) -> str:
    model = nn.Sequential()
    model.add_module("head", inner)
    with pytest.raises(UnsupportedModelError) as caught:
        from_torch_export(torch.export.export(model, (torch.ones(4, 4),)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("inner", "named"),
    [
        (_Inner(), ("histogram.bin_ct (in head_", "histogram.bins_tensor (in head_")),
        (_Spectrum(), ("fft_fft.default (in head_",)),
        (_WithReason(), ("special_airy_ai.default (in head_", "it has no gradient in PyTorch")),
    ],
)
def test_an_operator_of_pytorch(inner: nn.Module, named: tuple[str, ...]) -> None:
    message = _torch_message(inner)
    assert all(part in message for part in named), message
    assert any(
        part in message for part in ("replace them in", "view_as_real", "compute it outside")
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    ("operator", "reason", "advice"),
    [
        ("NonZero", "number of elements that are not zero", "choose by Where"),
        ("RandomNormalLike", "draws random numbers", "make them an input"),
        ("Whatever", "has no converter", "replace them by operators of docs/operators/onnx.md"),
    ],
)
def test_an_operator_of_onnx(operator: str, reason: str, advice: str) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (3,), np.ones(3, "float32"))
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["scaled"], "/body/Mul"),
        helper.make_node(operator, ["scaled"], ["y"], f"/head/{operator}"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    made = TensorProto.INT64 if operator == "NonZero" else TensorProto.FLOAT
    y = helper.make_tensor_value_info("y", made, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedModelError) as caught:
        import_model("net", model)
    message = str(caught.value)
    assert f"{operator} (in head" in message and reason in message and advice in message, message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("nodes", "operator", "missing"),
    [
        ([("MatMul", ["x", "lost"], ["y"])], "MatMul", "lost"),
        ([("Add", ["x", "y"], ["z"]), ("Relu", ["z"], ["y"])], "Add", "y"),
        ([("Relu", ["z"], ["y"]), ("Neg", ["x"], ["z"])], "Relu", "z"),
    ],
)
def test_a_node_that_reads_what_nothing_makes_is_named(
    nodes: list[tuple[str, list[str], list[str]]], operator: str, missing: str
) -> None:
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 2)) for name in ("x", "y")
    ]
    made = [helper.make_node(*node, name=f"/body/{node[0]}") for node in nodes]
    graph = helper.make_graph(made, "g", described[:1], described[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedModelError, match=rf"{operator} \(in body\) .* '{missing}'"):
        import_model("net", model)


@pytest.mark.parametrize(
    ("inputs", "outputs", "opset", "reason"),
    [
        (["x"], [], 17, "has no outputs"),
        (["x", "x"], ["y"], 17, "several inputs of the name 'x'"),
        (["x"], ["y"], 999, "opset 999"),
    ],
)
def test_a_graph_that_cannot_be_meant_is_refused(
    inputs: list[str], outputs: list[str], opset: int, reason: str
) -> None:
    given, made = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 2)) for name in names]
        for names in (inputs, outputs)
    )
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model("net", model)


def test_tensors_that_no_memory_holds_or_that_have_no_size_are_refused() -> None:
    described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 2)) for name in "xy"]
    size = helper.make_tensor("size", TensorProto.INT64, (2,), [1 << 30, 1 << 30])
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["z"]),
        helper.make_node("MatMul", ["x", "z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", described[:1], described[1:], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedModelError, match=r"does not fit in memory: .* 4\.00 EiB"):
        import_model("net", model)
    size.dims[0] = -2
    graph.initializer[0].CopyFrom(size)
    model.graph.CopyFrom(graph)
    with pytest.raises(UnsupportedModelError, match=r"'size' has the shape \(-2,\); .* damaged"):
        import_model("net", model)
