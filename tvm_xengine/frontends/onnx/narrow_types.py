"""Numbers of less than a byte and 8-bit floats, held in wider types that have all their values.

TVM's kernels read and write such numbers wrongly or not at all. Each lies in the narrowest type
that has its values exactly; what makes one rounds to the values that the narrow type has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tvm_xengine.frontends.onnx.graphs.functions import all_nodes
from tvm_xengine.frontends.onnx.graphs.shapes import element_types

_FLOAT16 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")

HELD_AS: Mapping[str, str] = {
    **dict.fromkeys((*_FLOAT16, "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2"), "FLOAT16"),
    "FLOAT8E8M0": "FLOAT",
    **dict.fromkeys(("INT2", "INT4"), "INT8"),
    **dict.fromkeys(("UINT2", "UINT4"), "UINT8"),
}
"""ONNX's names of types, by those of the narrow types."""

NARROW = "narrow_type"
"""The attribute of a node that says to which values its result is rounded."""

_MADE_BY_CAST = {"Cast": "to", "QuantizeLinear": "output_dtype", "DequantizeLinear": "output_dtype"}
"""The attribute that names the type of a result, by operator."""


def hold_narrow_types(model: onnx.ModelProto) -> dict[str, str]:
    """Give tensors of narrow types the type that they are held in.

    Returns
    -------
    dict
        The narrow types of the inputs and outputs of the graph, by name.
    """
    types = {n: _name(c) for n, c in element_types(model).items() if _name(c) in HELD_AS}
    graph = model.graph
    if not types and not any(_named(node) for node in all_nodes(graph)):
        return {}
    for node in all_nodes(graph):
        _hold_results(node, types)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_held(attribute.t))
    for k, tensor in enumerate(graph.initializer):
        graph.initializer[k].CopyFrom(_held(tensor))
    met = {}
    for info in [*graph.input, *graph.output]:
        kind = _name(info.type.tensor_type.elem_type)
        if kind in HELD_AS:
            met[info.name] = kind
            info.type.tensor_type.elem_type = _code(HELD_AS[kind])
    del graph.value_info[:]
    return met


def _hold_results(node: onnx.NodeProto, types: Mapping[str, str]) -> None:
    """Let a node that makes narrow numbers round to them, in the type that holds them."""
    wanted = _named(node)
    if node.op_type == "CastLike" and node.input[1] in types:
        wanted = types[node.input[1]]
        node.op_type = "Cast"
        del node.input[1:]
    elif node.op_type == "QuantizeLinear" and not wanted and len(node.input) > 2:
        wanted = types.get(node.input[2], "")
    if not wanted:
        return
    name = _MADE_BY_CAST[node.op_type]
    rest = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend(rest)
    node.attribute.append(helper.make_attribute(name, _code(HELD_AS[wanted])))
    node.attribute.append(helper.make_attribute(NARROW, wanted))


def _named(node: onnx.NodeProto) -> str:
    """The narrow type that a node's attribute names; empty if it names none."""
    wanted = _MADE_BY_CAST.get(node.op_type)
    codes = [one.i for one in node.attribute if one.name == wanted]
    kind = _name(codes[0]) if codes else ""
    return kind if kind in HELD_AS else ""


def _held(tensor: onnx.TensorProto) -> onnx.TensorProto:
    kind = _name(tensor.data_type)
    if kind not in HELD_AS:
        return tensor
    wide = helper.tensor_dtype_to_np_dtype(_code(HELD_AS[kind]))
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(wide), tensor.name)


def _name(code: int) -> str:
    return str(TensorProto.DataType.Name(code))


def _code(name: str) -> int:
    return int(TensorProto.DataType.Value(name))


_NUMPY_TYPES: Mapping[str, type] = {
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT6E2M3": ml_dtypes.float6_e2m3fn,
    "FLOAT6E3M2": ml_dtypes.float6_e3m2fn,
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "INT2": ml_dtypes.int2,
    "INT4": ml_dtypes.int4,
    "UINT2": ml_dtypes.uint2,
    "UINT4": ml_dtypes.uint4,
}


def numpy_type(name: str) -> np.dtype[np.generic]:
    """The type of an array of a narrow type."""
    return np.dtype(_NUMPY_TYPES[name])


@cache
def magnitudes(name: str) -> NDArray[np.float32]:
    """The values of a narrow float from zero on, in rising order, as float32."""
    dtype = numpy_type(name)
    codes = np.arange(1 << _bits(name), dtype=np.uint8).view(dtype).astype(np.float32)
    return np.unique(np.abs(codes[np.isfinite(codes)]))


def _bits(name: str) -> int:
    return int(name.removeprefix("FLOAT")[0])


def bounds_between(name: str, round_mode: str = "nearest") -> NDArray[np.float32]:
    """The largest numbers of float32 that are rounded to each value of `magnitudes` but the last.

    To the nearest value; halfway as the type does it, which is to the even one.
    """
    values = magnitudes(name)
    if round_mode == "up":
        return values[:-1]
    if round_mode == "down":
        return np.nextafter(values[1:], np.float32(0))
    middles = (values[:-1] + values[1:]) / np.float32(2)
    goes_up = middles.astype(numpy_type(name)).astype(np.float32) == values[1:]
    return np.where(goes_up, np.nextafter(middles, np.float32(0)), middles)


def beyond(name: str) -> tuple[float, float]:
    """The largest number that is rounded to the largest value, and what larger ones become."""
    values = magnitudes(name)
    middle = values[-1:] + (values[-1:] - values[-2:-1]) / np.float32(2)
    dtype = numpy_type(name)
    with np.errstate(over="ignore", invalid="ignore"):
        halfway = middle.astype(dtype).astype(np.float32)
        overflow = float(np.array([np.inf], np.float32).astype(dtype).astype(np.float32)[0])
    stays = bool(halfway[0] == values[-1])
    last = middle if stays else np.nextafter(middle, np.float32(0))
    return float(last[0]), overflow


def of_nan(name: str) -> float:
    """What becomes of a NaN: another number in types that have none."""
    with np.errstate(invalid="ignore"):
        made = np.array([np.nan], np.float32).astype(numpy_type(name))
    return float(made.astype(np.float32)[0])
