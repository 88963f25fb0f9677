"""Casts to 8-bit floats and numbers of less than a byte have the values of ml_dtypes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import vm
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.frontends.onnx.narrow_types import HELD_AS, magnitudes, numpy_type
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.forward.evaluation import evaluation_module

FLOATS = [name for name in HELD_AS if name.startswith("FLOAT") and name != "FLOAT8E8M0"]
INTEGERS = [name for name in HELD_AS if "INT" in name]


def cast(x: Array, kind: str, **attributes: object) -> Array:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DataType.Value(kind), **attributes)
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "cast",
        [helper.make_tensor_value_info("x", code, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.DataType.Value(kind), x.shape)],
    )
    return computed(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]), x)


def computed(model: onnx.ModelProto, x: Array) -> Array:
    imported = import_model("narrow", model)
    lowered = LowerToKernels("main")(evaluation_module(imported))
    return vm.computed(lowered, [x, *imported.state.values()])[0]


def hard_numbers(kind: str) -> Array:
    """The values, all middles between them, their neighbours, and what lies beyond them."""
    values = magnitudes(kind)
    middles = (values[:-1] + values[1:]) / 2
    near = [np.nextafter(middles, np.float32(way)) for way in (0, np.inf)]
    beyond = values[-1] * np.array([1.01, 1.1, 2, 1e9], np.float32)
    size = np.concatenate([values, middles, *near, beyond, [np.inf]]).astype(np.float32)
    return np.concatenate([size, -size, [np.nan]]).astype(np.float32)


@pytest.mark.parametrize("kind", FLOATS)
def test_numbers_are_rounded_to_even_values(kind: str) -> None:
    x = hard_numbers(kind)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(numpy_type(kind)).astype(np.float32)
    np.testing.assert_array_equal(cast(x, kind, saturate=0).astype(np.float32), wanted)


@pytest.mark.parametrize("kind", [name for name in FLOATS if name.startswith("FLOAT8")])
def test_saturated_numbers_stay_at_the_largest_value(kind: str) -> None:
    x, most = hard_numbers(kind), magnitudes(kind)[-1]
    wanted = np.clip(x, -most, most).astype(numpy_type(kind)).astype(np.float32)
    np.testing.assert_array_equal(cast(x, kind).astype(np.float32), wanted)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_keep_their_lowest_bits(kind: str) -> None:
    x = np.array([-9.9, -8, -1.5, -0.5, 0, 0.9, 1, 3, 7, 8, 15, 100], np.float32)
    np.testing.assert_array_equal(cast(x, kind), x.astype(numpy_type(kind)).astype(np.int32))


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT4E2M1"])
def test_a_layer_reads_weights_that_are_stored_in_a_narrow_type(kind: str) -> None:
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 7, (4, 3)).astype(np.float32).astype(numpy_type(kind))
    weight = numpy_helper.from_array(stored, "w")
    scale = numpy_helper.from_array(np.float32(0.25), "scale")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["wide"]),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "quantized",
        [info("x", TensorProto.FLOAT, (2, 4))],
        [info("y", TensorProto.FLOAT, (2, 3))],
        [weight, scale],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    x = rng.standard_normal((2, 4)).astype(np.float32)
    wanted = x @ (stored.astype(np.float32) * 0.25)
    np.testing.assert_allclose(computed(model, x), wanted, rtol=1e-5)
