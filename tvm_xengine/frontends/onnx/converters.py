"""ONNX operators that TVM's importer makes kernels of, or does not know, as operators of Relax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.inputs import Attributes, Inputs, given, padded
from tvm_xengine.frontends.onnx.recurrent import gru, lstm, rnn
from tvm_xengine.frontends.torch.aten.elementwise import elu
from tvm_xengine.relax_ir.types import Array, static_shape

Converter = Callable[[relax.BlockBuilder, Inputs, Attributes], relax.Expr]


def clip(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Clip to [low, high], either of which may be missing; numbers before version 11."""
    x, low, high = padded(inputs, 3)
    dtype = str(given(x).ty.dtype)
    limits = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    bounds = [
        _number(tensor) if tensor is not None else attributes.get(name, default)
        for tensor, name, default in ((low, "min", limits.min), (high, "max", limits.max))
    ]
    if any(bound is None for bound in bounds):
        raise UnsupportedModelError("bounds that are computed; both must be constants")
    least, most = (
        float(np.clip(np.nan_to_num(bound, nan=default), limits.min, limits.max))  # type: ignore[call-overload]
        for bound, default in zip(bounds, (limits.min, limits.max), strict=True)
    )
    return builder.emit(relax.op.clip(given(x), least, most))


def tile(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Repeats as often as constants say."""
    x, repeats = padded(inputs, 2)
    return builder.emit(relax.op.tile(given(x), tuple(_integers(repeats, "repeats"))))


def einsum(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Products summed as the equation says."""
    equation = attributes["equation"]
    subscripts = equation.decode() if isinstance(equation, bytes) else str(equation)
    return builder.emit(relax.op.einsum(tuple(given(x) for x in inputs), subscripts))


def celu(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = float(attributes.get("alpha", 1.0))  # type: ignore[arg-type]
    return elu(builder, given(inputs[0]), alpha, 1.0, 1 / alpha)


def pad(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Borders of constant width (numbers before version 11), some of which may cut off."""
    x, widths, value, axes = padded(inputs, 4)
    x = given(x)
    rank = len(static_shape(x.ty))
    numbers = _listed(attributes["pads"]) if widths is None else _integers(widths, "widths")
    chosen = range(rank) if axes is None else _integers(axes, "axes")
    mode = attributes.get("mode", b"constant")
    name = mode.decode() if isinstance(mode, bytes) else str(mode)
    fill = attributes.get("value", 0.0) if value is None else _number(value)
    if fill is None:
        raise UnsupportedModelError("a value that is computed; it must be a constant")
    pairs = np.zeros((rank, 2), int)
    pairs[[axis % rank for axis in chosen]] = np.reshape(numbers, (2, -1)).T
    if (pairs < 0).any():
        ends = [
            extent + min(0, int(b))
            for extent, (_, b) in zip(static_shape(x.ty), pairs, strict=True)
        ]
        begins = [max(0, -int(a)) for a, _ in pairs]
        x = builder.emit(relax.op.strided_slice(x, list(range(rank)), begins, ends))
        pairs = np.maximum(pairs, 0)
    known = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if name not in known:
        raise UnsupportedModelError(f"mode {name}; known are {list(known)}")
    widths_flat = [int(width) for width in pairs.ravel()]
    return builder.emit(relax.op.nn.pad(x, widths_flat, known[name], float(fill)))  # type: ignore[arg-type]


def _constant(value: relax.Expr | None) -> Array | None:
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def _number(value: relax.Expr | None) -> float | None:
    array = _constant(value)
    return None if array is None else float(array.reshape(-1)[0])


def _listed(value: object) -> list[int]:
    return [int(one) for one in np.ravel(np.asarray(value))]


def _integers(value: relax.Expr | None, what: str) -> list[int]:
    array = _constant(value)
    if array is None:
        raise UnsupportedModelError(f"{what} that are computed; they must be constants")
    return [int(one) for one in array.reshape(-1)]


CONVERTERS: dict[str, Converter] = {
    "Celu": celu,
    "Clip": clip,
    "Einsum": einsum,
    "GRU": gru,
    "LSTM": lstm,
    "Pad": pad,
    "RNN": rnn,
    "Tile": tile,
}
