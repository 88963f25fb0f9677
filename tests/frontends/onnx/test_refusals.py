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
from tvm_xengine.frontends.onnx.read import from_onnx


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


def test_a_batch_of_nothing_has_no_loss(tmp_path: Path) -> None:
    model = from_onnx(product(tmp_path / "m.onnx", (0, 4)))
    with pytest.raises(UnsupportedModelError, match=r"shape \(0, 3\).* at least 1"):
        xe.training_step(model, loss="mse")
