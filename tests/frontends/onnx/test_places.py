"""Nodes of an ONNX file know where in a PyTorch module they come from, as its exporters write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.onnx.place import places_of
from tvm_xengine.frontends.place import Place

_TRACE = """
  File "/home/a/net.py", line 12, in forward
    x = self.body(x)
  File "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
"""


def _graph(node: onnx.NodeProto) -> onnx.GraphProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    return helper.make_graph([node], "net", [x], [y], [weight])


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/body/body.0/MatMul", "body.0"),
        ("/layers.0/attention/MatMul_1", "layers.0.attention"),
        ("/MatMul", ""),
        ("model/dense/MatMul", ""),
        ("", ""),
    ],
)
def test_the_exporter_by_tracing_names_nodes_after_modules(name: str, module: str) -> None:
    places = places_of(_graph(helper.make_node("MatMul", ["x", "w"], ["y"], name=name)))
    assert places.get(name, Place()) == Place(module)


@pytest.mark.parametrize(
    ("scopes", "module"),
    [
        ("['', 'body', 'body.0', 'linear']", "body.0"),
        ("['linear']", ""),
        ("f(", ""),
        ("[1, 2]", ""),
    ],
)
def test_the_exporter_by_export_writes_scopes_and_the_stack(
    scopes: str, module: str, tmp_path: Path
) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node_linear")
    properties = {"pkg.torch.onnx.name_scopes": scopes, "pkg.torch.onnx.stack_trace": _TRACE}
    for key, value in properties.items():
        node.metadata_props.add(key=key, value=value)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(_graph(node), opset_imports=[helper.make_opsetid("", 18)]), path)
    places = load_model(path).places
    assert set(places.values()) == {Place(module, "net.py:12")}
