"""The use that ONNX operators make of each of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import onnx


class InputUse(Enum):
    """What an operator does with one of its inputs."""

    WEIGHT = "weight"  # a trained tensor of a layer
    STATISTIC = "running statistic"
    ARITHMETIC = "operand"  # of an operator that knows no weights, such as Add
    STATE = "initial state of a recurrent layer"
    OTHER = "other"


_WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "Attention": (1, 2),  # Microsoft's; ONNX's own is among _ARITHMETIC
    "BatchNormalization": (1, 2),
    "BiasGelu": (1,),
    "CausalConvWithState": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "Einsum": (0, 1, 2, 3),
    "FastGelu": (1,),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
    "SkipLayerNormalization": (2, 3, 4),
}
"""Positions of the inputs that are weights."""

NORMS = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"}
    | {"RMSNormalization"}
)
"""Operators whose weights are a scale, and a shift behind it."""

_ARITHMETIC = frozenset({"Add", "Concat", "Div", "Mean", "Mul", "Pow", "Sub", "Sum"})

_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
"""Positions of the inputs that are initial states."""


def use_of(node: onnx.NodeProto, position: int) -> InputUse:
    """What a node does with its input at a position."""
    kind = node.op_type
    if kind == "BatchNormalization" and position in (3, 4):
        return InputUse.STATISTIC
    if kind == "Attention" and node.domain in ("", "ai.onnx"):
        return InputUse.ARITHMETIC if position < 4 else InputUse.OTHER
    if position in _WEIGHTS.get(kind, ()):
        return InputUse.WEIGHT
    if position in _STATES.get(kind, ()):
        return InputUse.STATE
    if kind in _ARITHMETIC or (kind == "Where" and position > 0):
        return InputUse.ARITHMETIC
    return InputUse.OTHER
