"""Graphs whose values are told by NumPy where ONNX's reference evaluator does not know them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.traps.onnx_files.graphs import (
    IMAGES,
    B,
    V,
    W,
    X,
    branch,
    graph,
    loop,
    model,
    node,
    random,
)


@dataclass(frozen=True)
class Values:
    """A model, what it is given, and what it makes: None asks ONNX's reference evaluator."""

    model: onnx.ModelProto
    x: np.ndarray = field(default_factory=lambda: X)
    wanted: np.ndarray | None = None


def _sparse() -> onnx.ModelProto:
    made = model([node("MatMul", "x w", "y")])
    values = numpy_helper.from_array(np.array([1, 2, 3], "float32"), "w")
    places = numpy_helper.from_array(np.array([[0, 0], [1, 2], [3, 3]]), "places")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 4]))
    return made


SPARSE = np.zeros((4, 4), "float32")
SPARSE[[0, 1, 3], [0, 2, 3]] = (1, 2, 3)


def _ifs(first: bool) -> onnx.ModelProto:
    """Two Ifs whose branches use the same names for tensors, weights and constants."""
    scale = helper.make_node(
        "Constant", [], ["h"], value=numpy_helper.from_array(np.array(2, "float32"))
    )
    scaled = graph([scale, node("Mul", "x h", "z")], outputs=("z",))
    other = graph([node("Exp", "x", "h"), node("Mul", "x h", "z")], outputs=("z",))
    nodes = [
        node("If", "yes", "a", then_branch=branch("Mul", W[:3]), else_branch=branch("Add", V[:3])),
        node("If", "no", "b", then_branch=branch("Add", V[:3]), else_branch=branch("Sub", W[:3])),
        node("If", "yes", "c", then_branch=scaled, else_branch=other),
        node("If", "no", "d", then_branch=scaled, else_branch=other),
        node("Exp", "x", "h"),
        node("Sum", "a b c d h", "y"),
    ]
    return model(nodes, {"yes": first, "no": not first})


def _if_in_loop() -> onnx.ModelProto:
    double = graph([node("Mul", "v two", "h"), node("Identity", "h", "z")], outputs=("z",))
    other = graph([node("Add", "v two", "h"), node("Neg", "h", "z")], outputs=("z",))
    body = [
        node("Equal", "i one", "is"),
        node("If", "is", "o", then_branch=double, else_branch=other),
    ]
    stored = {"n": 4, "one": 1, "two": np.float32(2), "yes": True}
    return model([loop(body)], stored)


LOOPED = X
for _k in range(4):
    LOOPED = LOOPED * 2 if _k == 1 else -(LOOPED + 2)

NORM = {"s": random(3), "b": random(3), "m": random(3), "v": np.abs(random(3)) + 0.5}
NORMED = (IMAGES - NORM["m"][:, None, None]) / np.sqrt(NORM["v"][:, None, None] + 1e-5)
NORMED = NORMED * NORM["s"][:, None, None] + NORM["b"][:, None, None]

VALUES = {
    "an initialiser a.b beside a tensor a_b": Values(
        model([node("MatMul", "x a.b", "a_b"), node("MatMul", "a_b a.b", "y")], {"a.b": W})
    ),
    "branches of equal names, then": Values(_ifs(True)),
    "branches of equal names, else": Values(_ifs(False)),
    "a branch in a loop": Values(_if_in_loop(), wanted=LOOPED),
    "a loss that an older operator set defines": Values(
        model(
            [node("MatMul", "x w", "h"), node("SoftmaxCrossEntropyLoss", "h t", "y")],
            {"w": W, "t": np.array([0, 3, 1])},
        )
    ),
    "a sparse initialiser": Values(_sparse(), wanted=X @ SPARSE),
    "a softmax over all axes behind one": Values(
        model([node("Softmax", "x", "y", axis=1)], x=IMAGES.shape, opset=11),
        IMAGES,
        (np.exp(IMAGES).reshape(2, -1) / np.exp(IMAGES).reshape(2, -1).sum(1)[:, None]).reshape(
            IMAGES.shape
        ),
    ),
    "bounds of Clip in attributes": Values(
        model([node("Clip", "x", "y", max=0.3)], opset=6), wanted=X.clip(None, 0.3)
    ),
    "Clip without its minimum": Values(model([node("Clip", "x - m", "y")], {"m": np.float32(0.3)})),
    "bounds of Slice in attributes": Values(
        model([node("Slice", "x", "y", starts=[1, -3], ends=[99, -1], axes=[0, 1])], opset=9),
        wanted=X[1:, -3:-1],
    ),
    "TopK of version 10": Values(
        model([node("TopK", "x k", "y i", axis=0)], {"k": [2]}, opset=10),
        wanted=np.sort(X, 0)[::-1][:2],
    ),
    "Concat without an axis": Values(
        model([node("Concat", "x x", "y")], opset=1), wanted=np.concatenate([X, X], 1)
    ),
    "an axis of Add": Values(
        model([node("Add", "x b", "y", broadcast=1, axis=0)], {"b": B[:3]}, opset=6),
        wanted=X + B[:3, None],
    ),
    "a slope for each channel": Values(
        model([node("PRelu", "x b", "y")], {"b": B[:3]}, x=IMAGES.shape, opset=6),
        IMAGES,
        np.where(IMAGES < 0, IMAGES * B[:3, None, None], IMAGES),
    ),
    "a batch norm of version 6": Values(
        model(
            [node("BatchNormalization", "x s b m v", "y", is_test=1)], NORM, x=IMAGES.shape, opset=6
        ),
        IMAGES,
        NORMED,
    ),
    "a sum of squares over no axes": Values(
        model([node("ReduceSumSquare", "x", "y", noop_with_empty_axes=1)], opset=18), wanted=X**2
    ),
    "a norm over no axes": Values(
        model([node("ReduceL1", "x", "y", noop_with_empty_axes=1)], opset=18), wanted=np.abs(X)
    ),
    "Expand to fewer": Values(model([node("Expand", "x s", "y")], {"s": [3, 1]}), wanted=X),
    "a dropout of inference": Values(
        model([node("Dropout", "x r no", "y mask")], {"r": np.float32(0.5), "no": False}), wanted=X
    ),
    "negative axes": Values(
        model(
            [
                node("Unsqueeze", "x a", "h"),
                node("ReduceMean", "h", "k", axes=[-2], keepdims=0),
                node("Squeeze", "k", "y"),
            ],
            {"a": [-1, 0]},
        ),
        wanted=X.mean(1),
    ),
    "a shape that is computed": Values(
        model(
            [
                node("Shape", "x", "s"),
                node("Gather", "s k", "n"),
                node("Unsqueeze", "n z", "m"),
                node("Concat", "m r", "t", axis=0),
                node("Reshape", "x t", "y"),
            ],
            {"k": -1, "z": [0], "r": [-1]},
        ),
        wanted=X.reshape(4, 3),
    ),
    "nothing": Values(
        model([node("Slice", "x z z", "e"), node("Concat", "e x", "y", axis=0)], {"z": [0]}),
        wanted=X,
    ),
}
"""By what they try."""
