"""Graphs of a network and the module that trains in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.traps.onnx_files.graphs import B, V, W, X, graph, info, loop, model, node, random
from tests.traps.training import Trap


class Of(nn.Module):
    """A function of parameters and of the input."""

    def __init__(
        self, function: Callable[..., torch.Tensor], tensors: Mapping[str, np.ndarray]
    ) -> None:
        super().__init__()
        self.function, self.names = function, tuple(tensors)
        for name, value in tensors.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *(getattr(self, name) for name in self.names))


@dataclass(frozen=True)
class File:
    """A model in a file, and the trap whose module it is."""

    model: onnx.ModelProto
    trap: Trap


def _file(
    made: onnx.ModelProto, function: Callable[..., torch.Tensor], x: np.ndarray = X, **w: np.ndarray
) -> File:
    return File(made, Trap(Of(function, w), (torch.tensor(x),)))


def _with_inputs(ir_version: int, opset: int) -> onnx.ModelProto:
    """Initialisers that are inputs, too, in front of the input of data."""
    made = model(
        [node("MatMul", "x w", "h"), node("Add", "h b", "y")], {"w": W, "b": B}, opset=opset
    )
    inputs = [info("w", (4, 4)), info("b", (4,)), *made.graph.input]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    made.ir_version = ir_version
    return made


def _rounded(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(x @ w, 0.02, 3, -128, 127) @ v


PAIR = [
    node("MatMul", "x w", "h"),
    node("QuantizeLinear", "h s z", "q"),
    node("DequantizeLinear", "q s z", "d"),
    node("MatMul", "d v", "y"),
]
SCALE = {"s": np.float32(0.02), "z": np.int8(3)}
WHOLE = np.clip(np.round(W * 40), -127, 127).astype("int8")

LAYER = helper.make_function(
    "own",
    "Layer",
    ["x", "w"],
    ["y"],
    [node("MatMul", "x w", "h"), node("Tanh", "h", "y")],
    [helper.make_opsetid("", 17)],
)


def _constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return node("Constant", "", name, value=numpy_helper.from_array(value, name))


def _three_times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.tanh(x @ w)
    return x


def _twice(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w) @ v


COUNT = {"n": 3, "yes": True}
STACK = random(2, 4, 4)

TRAINED = {
    "ones that the code adds": _file(
        model(
            [
                node("ConstantOfShape", "n", "ones", value=numpy_helper.from_array(B[:1], "v")),
                node("MatMul", "x w", "h"),
                node("Add", "h ones", "y"),
            ],
            {"w": W, "n": [4]},
        ),
        lambda x, w: x @ w + B[0],
        w=W,
    ),
    "one tensor under two names": _file(
        model(
            [
                node("Identity", "w", "again"),
                node("MatMul", "x w", "h"),
                node("Tanh", "h", "t"),
                node("MatMul", "t again", "y"),
            ],
            {"w": W},
        ),
        lambda x, w: _twice(x, w, w),
        w=W,
    ),
    "tied to its transposed": _file(
        model(
            [
                node("Transpose", "w", "turned", perm=[1, 0]),
                node("MatMul", "x w", "h"),
                node("Tanh", "h", "t"),
                node("MatMul", "t turned", "y"),
            ],
            {"w": W},
        ),
        lambda x, w: _twice(x, w, w.t()),
        w=W,
    ),
    "a weight through Reshape, Identity and Cast": _file(
        model(
            [
                node("Reshape", "w s", "a"),
                node("Identity", "a", "b"),
                node("Cast", "b", "c", to=TensorProto.FLOAT),
                node("MatMul", "x c", "y"),
            ],
            {"w": W.ravel(), "s": [4, -1]},
        ),
        lambda x, w: x @ w.reshape(4, 4),
        w=W.ravel(),
    ),
    "slices of a weight": _file(
        model(
            [
                node("Gather", "w zero", "a"),
                node("Gather", "w last", "b"),
                node("MatMul", "x a", "h"),
                node("Tanh", "h", "t"),
                node("MatMul", "t b", "y"),
            ],
            {"w": STACK, "zero": 0, "last": -1},
        ),
        lambda x, w: _twice(x, w[0], w[-1]),
        w=STACK,
    ),
    "a weight that is an operand, too": _file(
        model([node("MatMul", "x w", "h"), node("Add", "h w", "y")], {"w": W}, x=(4, 4)),
        lambda x, w: x @ w + w,
        random(4, 4),
        w=W,
    ),
    "initialisers that are inputs": _file(_with_inputs(4, 13), lambda x, w, b: x @ w + b, w=W, b=B),
    "initialisers that are inputs, as first versions want": _file(
        _with_inputs(3, 8), lambda x, w, b: x @ w + b, w=W, b=B
    ),
    "outputs and initialisers that nothing reads": _file(
        model(
            [node("MatMul", "x w", "h"), node("Split", "h", "y other", axis=1)], {"w": W, "u": V}
        ),
        lambda x, w: (x @ w)[:, :2],
        w=W,
    ),
    "a learned number": _file(
        model(
            [node("MatMul", "x w", "h"), node("Mul", "h t", "y")], {"w": W, "t": np.float32(1.5)}
        ),
        lambda x, w, t: x @ w * t,
        w=W,
        t=np.float32(1.5),
    ),
    "parameters called loss and lr": _file(
        model([node("MatMul", "x loss", "h"), node("Add", "h lr", "y")], {"loss": W, "lr": B}),
        lambda x, w, b: x @ w + b,
        loss=W,
        lr=B,
    ),
    "a quantized weight": _file(
        model(
            [node("DequantizeLinear", "w_quantized s z", "d"), node("MatMul", "x d", "y")],
            {"w_quantized": WHOLE, "s": np.float32(0.025), "z": np.int8(0)},
        ),
        lambda x, w: x @ w,
        w=WHOLE * np.float32(0.025),
    ),
    "a tensor that is quantized and back": _file(
        model(PAIR, {"w": W, "v": V, **SCALE}), _rounded, w=W, v=V
    ),
    "a weight that is quantized and back": _file(
        model(
            [
                node("QuantizeLinear", "w s z", "q"),
                node("DequantizeLinear", "q s z", "d"),
                node("MatMul", "x d", "y"),
            ],
            {"w": W, **SCALE},
        ),
        lambda x, w: x @ torch.fake_quantize_per_tensor_affine(w, 0.02, 3, -128, 127),
        w=W,
    ),
    "a function of the file, called twice": _file(
        model(
            [node("Layer", "x w", "t", domain="own"), node("Layer", "t w", "y", domain="own")],
            {"w": W},
            functions=[LAYER],
        ),
        lambda x, w: torch.tanh(torch.tanh(x @ w) @ w),
        w=W,
    ),
    "a weight that all iterations read": _file(
        model([loop([node("MatMul", "v w", "h"), node("Tanh", "h", "o")])], {"w": W, **COUNT}),
        _three_times,
        w=W,
    ),
    "a weight inside a loop": _file(
        model([loop([node("MatMul", "v w", "h"), node("Tanh", "h", "o")], {"w": W})], COUNT),
        _three_times,
        w=W,
    ),
    "a constant as weight inside a loop": _file(
        model(
            [loop([_constant("w", W), node("MatMul", "v w", "h"), node("Tanh", "h", "o")])], COUNT
        ),
        _three_times,
        w=W,
    ),
    "weights of branches of equal names": _file(
        model(
            [
                node(
                    "If",
                    "yes",
                    "y",
                    then_branch=graph([node("MatMul", "x w", "z")], {"w": W}, outputs=("z",)),
                    else_branch=graph([node("MatMul", "x w", "z")], {"w": V}, outputs=("z",)),
                )
            ],
            {"yes": False},
        ),
        lambda x, w: x @ w,
        w_2=V,
    ),
}
"""By what they try."""
