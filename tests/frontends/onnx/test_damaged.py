"""A damaged ONNX file is refused in a sentence; it never ends in another error."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_xengine.errors import XEngineError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.onnx.read import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore")


def network() -> bytes:
    """A small convolutional network, of which every part may be damaged."""
    draw = np.random.default_rng(0).standard_normal
    weights = {
        "w": draw((4, 3, 3, 3)).astype("float32"),
        "b": draw(4).astype("float32"),
        "to": np.array([2, 16]),
        "g": draw((5, 16)).astype("float32"),
        "h": draw(5).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "to"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "h"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    draw, whole, path = random.Random(seed), network(), tmp_path / "damaged.onnx"
    refused = 0
    for _ in range(25):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            # Half of the damage hits the names and numbers in front of the weights.
            damaged[draw.randrange(draw.choice([200, len(whole)]))] = draw.randrange(256)
        path.write_bytes(damaged[: draw.choice([len(whole), draw.randrange(len(whole))])])
        try:
            from_onnx(path)
        except XEngineError:
            refused += 1
    assert refused


def test_names_of_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "name.onnx"
    path.write_bytes(network().replace(b"MaxPool", b"MaxP\xe4ol"))
    with pytest.raises(XEngineError):
        from_onnx(path)


def test_the_ending_of_a_file_may_be_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "NETWORK.ONNX"
    path.write_bytes(network())
    assert load_model(str(path)).batch_size == 2
    onnx.checker.check_model(str(path))
