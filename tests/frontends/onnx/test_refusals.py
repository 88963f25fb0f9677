"""What a file cannot mean is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_xengine as xe
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.scheduling.value_range import ValueRange
from tvm_xengine.training.forward.input_ranges import index_ranges


def product(path: Path, shape: Sequence[int], domain: str = "") -> Path:
    """A file that multiplies an input of a shape by a matrix."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], domain=domain)],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], 3])],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(path))
    return path


def test_an_operator_of_others_is_not_taken_for_that_of_onnx(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"operator of com\.acme has no converter"):
        from_onnx(product(tmp_path / "m.onnx", (2, 4), "com.acme"))


def test_a_negative_length_is_refused_unless_it_is_the_batch_that_is_given(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", (-1, 4))
    with pytest.raises(UnsupportedModelError, match=r"'x' has the shape \(-1, 4\)"):
        from_onnx(path)
    assert from_onnx(path, batch_size=2).batch_size == 2


def test_an_input_without_an_element_type_is_refused_by_name(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", (2, 4))
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UNDEFINED
    onnx.save(model, path)
    with pytest.raises(UnsupportedModelError, match="'x' has no element type"):
        from_onnx(path)


def test_a_node_that_leaves_out_what_it_needs_is_refused_by_name(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", (2, 4))
    model = onnx.load(path)
    model.graph.node[0].input[1] = ""
    onnx.save(model, path)
    with pytest.raises(UnsupportedModelError, match=r"MatMul \(in y\) lacks its input B"):
        from_onnx(path)


def test_a_batch_of_nothing_has_no_loss(tmp_path: Path) -> None:
    model = from_onnx(product(tmp_path / "m.onnx", (0, 4)))
    with pytest.raises(UnsupportedModelError, match=r"shape \(0, 3\).* at least 1"):
        xe.training_step(model, loss="mse")


def declaring(kind: int, shape: Sequence[int | str], hidden: Sequence[int]) -> onnx.ModelProto:
    """A product and its activation, whose types are declared so; they are float, (2, 3)."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", kind, shape)],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, hidden)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_what_nodes_compute_counts_and_what_the_file_declares_otherwise_is_told() -> None:
    assert not import_model("m", declaring(TensorProto.FLOAT, ("N", 3), (2, 3))).notes
    (note,) = import_model("m", declaring(TensorProto.FLOAT, (2, 5), (2, 3))).notes
    assert "'y' is declared to have the shape (2, 5), but its node makes (2, 3)" in note
    (note,) = import_model("m", declaring(TensorProto.FLOAT, (2, 3), (6,))).notes
    assert "'h' is declared to have the shape (6,), but its node makes (2, 3)" in note
    with pytest.raises(UnsupportedModelError, match=r"'y' is declared as int64, .* makes float"):
        import_model("m", declaring(TensorProto.INT64, (2, 3), (2, 3)))


def test_an_operator_without_a_converter_is_told_before_a_type_that_is_wrong() -> None:
    model = declaring(TensorProto.INT64, (2, 3), (2, 3))
    drawn = helper.make_node("RandomUniformLike", ["h"], ["h2"])
    relu = helper.make_node("Relu", ["h2"], ["y"])
    model.graph.node.pop()
    model.graph.node.extend([drawn, relu])
    with pytest.raises(UnsupportedModelError, match=r"RandomUniformLike .* draws random numbers"):
        import_model("m", model)


def indexing(op: str, index: Sequence[int] | None) -> onnx.ModelProto:
    """An operator that reads or writes a table of 7 rows at an index: a constant, or an input (None)."""
    shape = (3, 1) if op.endswith("ND") else (3, 5) if op.endswith("Elements") else (3,)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 5))]
    tensors = [numpy_helper.from_array(np.ones((7, 5), np.float32), "w")]
    if index is None:
        inputs.append(helper.make_tensor_value_info("i", TensorProto.INT64, shape))
    else:
        rows = np.array(index, np.int64).reshape(3, *[1] * (len(shape) - 1))
        tensors.append(numpy_helper.from_array(np.broadcast_to(rows, shape).copy(), "i"))
    more = ["x"] if op.startswith("Scatter") else []
    graph = helper.make_graph(
        [helper.make_node(op, ["w", "i", *more], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "indexing",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize(
    "op", ["Gather", "GatherND", "GatherElements", "ScatterElements", "ScatterND"]
)
def test_an_index_lies_inside_what_it_indexes(op: str) -> None:
    for wrong, place in ((7, 7), (-8, -1)):
        with pytest.raises(UnsupportedModelError, match=f"constant index that is {place}, counted"):
            import_model("m", indexing(op, [0, wrong, 1]))
    import_model("m", indexing(op, [0, 6, -7]))
    source = read_forward_ops(import_model("m", indexing(op, None)).main)
    (index,) = (param for param in source.params if param.name == "i")
    assert index_ranges(source, [index], {}) == {"i": ValueRange(-7, 6)}


def test_a_parameter_that_is_refused_is_called_as_in_the_file() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["net.0.weight"], ["w"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))],
        [numpy_helper.from_array(np.ones((4, 3), np.float16), "net.0.weight")],
    )
    model = import_model("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    with pytest.raises(UnsupportedModelError, match=r"found float16 in net\.0\.weight; store them"):
        xe.training_step(model, loss="mse")
