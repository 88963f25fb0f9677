"""Trained tensors go back into the ONNX file that the model came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_xengine.errors import InvalidStateError, UnsupportedModelError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.onnx.write import with_tensors


def tied_model(path: Path) -> onnx.ModelProto:
    """An embedding, and a product with its transposed copy, as exporters write tied weights."""
    table = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "x"], ["h"]),
            helper.make_node("MatMul", ["h", "turned"], ["y"]),
        ],
        "tied",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 6])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.ascontiguousarray(table.T), "turned"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(path))
    return model


def test_a_copy_of_a_trained_table_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "tied.onnx"
    tied_model(path)
    state = {name: array + 1 for name, array in load_model(str(path)).parameters.items()}
    assert set(state) == {"table"}
    written = onnx.load_from_string(with_tensors(path, state))
    (found,) = ReferenceEvaluator(written).run(None, {"x": np.array([0, 5, 2])})
    np.testing.assert_allclose(found, state["table"][[0, 5, 2]] @ state["table"].T, rtol=1e-5)


def test_the_names_of_a_tied_tensor_in_a_state_are_one_tensor(tmp_path: Path) -> None:
    """As `train --save` writes them: each name of a tied tensor has the table's values."""
    path = tmp_path / "tied.onnx"
    tied_model(path)
    table = np.random.default_rng(1).normal(size=(6, 4)).astype("float32")
    written = onnx.load_from_string(with_tensors(path, {"table": table, "turned": table}))
    assert [each.name for each in written.graph.initializer] == ["table"]
    (found,) = ReferenceEvaluator(written).run(None, {"x": np.array([0, 5, 2])})
    np.testing.assert_allclose(found, table[[0, 5, 2]] @ table.T, rtol=1e-5)


def test_the_file_itself_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "tied.onnx"
    tied_model(path)
    before = path.read_bytes()
    with_tensors(path, {"table": np.zeros((6, 4), "float32")})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"absent": np.zeros(3)}, "has no tensors absent; is it of another model"),
        ({"table": np.zeros((4, 6))}, r"table must have shape \(6, 4\), the state has \(4, 6\)"),
    ],
)
def test_a_state_of_another_model_is_refused(
    state: dict[str, np.ndarray], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "tied.onnx"
    tied_model(path)
    with pytest.raises(InvalidStateError, match=said):
        with_tensors(path, state)


def test_what_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(UnsupportedModelError):
        with_tensors(path, {})
