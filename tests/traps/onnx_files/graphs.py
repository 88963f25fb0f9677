"""ONNX graphs in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


X = random(3, 4)
IMAGES = random(2, 3, 5, 5)
W, V, B = random(4, 4), random(4, 4), random(4)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node whose inputs and outputs stand in texts, between blanks; ``-`` is one that is left out."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, **attributes)


def info(
    name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    stored: Mapping[str, object] = {},
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[str] = ("y",),
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    made = [info(name, None) for name in outputs]
    return helper.make_graph(list(nodes), "graph", list(inputs), made, tensors)


def model(
    nodes: Sequence[onnx.NodeProto],
    stored: Mapping[str, object] = {},
    *,
    x: Sequence[int | str] = (3, 4),
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of one input called ``x`` and, unless others are named, one output called ``y``."""
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid("own", 1) for _ in functions)]
    return helper.make_model(
        graph(nodes, stored, [info("x", x)], outputs),
        opset_imports=opsets[:2],
        functions=list(functions),
    )


def branch(op: str, value: np.ndarray) -> onnx.GraphProto:
    """A branch of an If, which uses the names that all other branches use."""
    return graph([node(op, "x w", "h"), node("Tanh", "h", "z")], {"w": value}, outputs=("z",))


def loop(body: Sequence[onnx.NodeProto], stored: Mapping[str, object] = {}) -> onnx.NodeProto:
    """A loop over ``n`` iterations that carries ``v``, x at first, and makes y; ``o`` is the next v."""
    inner = graph(
        [*body, node("Identity", "on", "still")],
        stored,
        [
            info("i", (), TensorProto.INT64),
            info("on", (), TensorProto.BOOL),
            info("v", (3, 4)),
        ],
        ("still", "o"),
    )
    return node("Loop", "n yes x", "y", body=inner)
