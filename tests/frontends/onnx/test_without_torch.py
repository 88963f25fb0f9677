"""ONNX files are read where PyTorch is not installed."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

PROGRAM = """
import sys
sys.modules["torch"] = None  # what an import of it finds where it is not installed
import tvm_xengine as xe
xe.training_step(sys.argv[1], loss="mse")
print("made")
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_step_is_made_without_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 1, 4, 4]), ("y", [2, 1, 2, 2]))
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 3, 3], [0.1] * 9)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Elu", ["c"], ["e"]),
        helper.make_node("Mish", ["e"], ["m"]),
        helper.make_node("MaxPool", ["m"], ["y", "at"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(nodes, "small", [x], [y], [weight])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "made\n"
