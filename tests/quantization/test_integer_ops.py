"""Operators on int8 do what PyTorch's quantized operators do, and C does what LLVM does."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from tvm import relax

from tests.aot.examples import need_tools
from tests.aot.kernels.test_c_kernel import C, differences
from tests.vm import computed
from tvm_xengine.aot.plan.kernels import Optimize, prepare_for_target
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.integer_ops import integer_call

RANDOM = np.random.default_rng(0)
X_SCALE, X_ZERO, Y_SCALE, Y_ZERO = 0.02, -9, 0.05, 17


def module(op: str, tensors: Sequence[np.ndarray], *numbers: float) -> relax.Function:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{k}", relax.TensorType(t.shape, str(t.dtype))) for k, t in enumerate(tensors)
    ]
    with builder.function("main", params=params):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(integer_call(op, params, *numbers)))
        builder.emit_func_output(output)
    return builder.get()


def run(op: str, tensors: Sequence[np.ndarray], *numbers: float) -> np.ndarray:
    return np.asarray(computed(module(op, tensors, *numbers), tensors)[0])


@pytest.fixture(autouse=True)
def _exact_engine() -> Iterator[None]:
    """fbgemm multiplies by a scale in float32; others shift whole numbers."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized tensors go in a later PyTorch
        yield
    torch.backends.quantized.engine = before


def real(whole: np.ndarray, scale: float, zero: int) -> torch.Tensor:
    """The quantized tensor of PyTorch with these elements, which it has as uint8."""
    values = (whole.astype("float32") - zero) * np.float32(scale)
    return torch.quantize_per_tensor(torch.tensor(values), scale, zero + 128, torch.quint8)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.integers(-128, 128, shape).astype("int8")


def weights(out: int, *shape: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Weights of 7 bits, for which no sum of fbgemm saturates, their scales, and PyTorch's form."""
    whole = RANDOM.integers(-63, 64, (out, *shape)).astype("int8")
    scales = RANDOM.uniform(0.005, 0.02, out).astype("float32")
    values = torch.tensor(whole.astype("float32") * scales.reshape(-1, *[1] * len(shape)))
    zeros = torch.zeros(out, dtype=torch.int64)
    packed = torch.quantize_per_channel(
        values, torch.tensor(scales).double(), zeros, 0, torch.qint8
    )
    assert (packed.int_repr().numpy() == whole).all()
    return whole, scales, packed


def whole_bias(scales: np.ndarray) -> np.ndarray:
    """A bias that int32 holds exactly: PyTorch adds it in float32."""
    return (RANDOM.integers(-900, 900, len(scales)) * scales * X_SCALE).astype("float32")


def integer_bias(whole: np.ndarray, scales: np.ndarray, bias: np.ndarray) -> np.ndarray:
    sums = whole.reshape(len(whole), -1).sum(axis=1, dtype="int32")
    return (np.rint(bias / (scales * X_SCALE)) - X_ZERO * sums).astype("int32")


@pytest.mark.parametrize(
    ("groups", "stride", "padding", "dilation", "relu"),
    [(1, 2, 0, 1, False), (6, 2, 1, 1, True), (2, 1, 2, 2, False)],
)
def test_convolution_is_that_of_pytorch(
    groups: int, stride: int, padding: int, dilation: int, relu: bool
) -> None:
    x = drawn(2, 6, 9, 8)
    whole, scales, packed = weights(12, 6 // groups, 3, 3)
    bias = whole_bias(scales)
    factor = (scales.astype("float64") * X_SCALE / Y_SCALE).astype("float32")
    lowest = Y_ZERO if relu else -128
    mine = run(
        ops.CONVOLUTION,
        [x, whole, integer_bias(whole, scales, bias), factor],
        *(stride, stride, *[padding] * 4, dilation, dilation, groups, X_ZERO),
        *(Y_ZERO, lowest, 127),
    )
    made = torch.ao.nn.quantized.functional.conv2d(
        real(x, X_SCALE, X_ZERO),
        packed,
        torch.tensor(bias),
        stride,
        padding,
        dilation,
        groups,
        scale=Y_SCALE,
        zero_point=Y_ZERO + 128,
    )
    theirs = np.maximum(made.int_repr().numpy().astype(int) - 128, lowest)
    assert len(np.unique(theirs)) > 20
    assert (mine == theirs).all()


def test_dense_layer_is_that_of_pytorch() -> None:
    x = drawn(5, 30)
    whole, scales, packed = weights(7, 30)
    bias = whole_bias(scales)
    factor = (scales.astype("float64") * X_SCALE / Y_SCALE).astype("float32")
    tensors = [x, whole, integer_bias(whole, scales, bias), factor]
    mine = run(ops.DENSE, tensors, Y_ZERO, -128, 127)
    made = torch.ao.nn.quantized.functional.linear(
        real(x, X_SCALE, X_ZERO), packed, torch.tensor(bias), Y_SCALE, Y_ZERO + 128
    )
    assert (mine == made.int_repr().numpy().astype(int) - 128).all()


@pytest.mark.parametrize(("op", "theirs"), [(ops.ADD, "add"), (ops.MULTIPLY, "mul")])
def test_sums_and_products_are_those_of_pytorch_within_one_step(op: str, theirs: str) -> None:
    x, y = drawn(2, 3, 4, 5), drawn(2, 3, 4, 5)
    numbers = [X_SCALE / Y_SCALE, 0.03 / Y_SCALE] if op == ops.ADD else [X_SCALE * 0.03 / Y_SCALE]
    mine = run(op, [x, y], X_ZERO, 5, *numbers, Y_ZERO, -128, 127)
    function = getattr(torch.ops.quantized, theirs)
    made = function(real(x, X_SCALE, X_ZERO), real(y, 0.03, 5), Y_SCALE, Y_ZERO + 128)
    away = mine.astype(int) - (made.int_repr().numpy().astype(int) - 128)
    assert np.abs(away).max() <= 1
    assert (away == 0).mean() > 0.99


def test_pools_are_those_of_pytorch() -> None:
    x = drawn(2, 3, 9, 7)
    mine = run(ops.MAX_POOL, [x], 5, 4, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1)
    made = torch.nn.functional.max_pool2d(real(x, X_SCALE, X_ZERO), 3, 2, 1)
    assert (mine == made.int_repr().numpy().astype(int) - 128).all()
    mean = run(ops.MEAN_POOL, [x], 1, 1, 9, 7, 1, 1, 0, 0, 0, 0, X_ZERO, 1.0, X_ZERO)
    made = torch.nn.functional.adaptive_avg_pool2d(real(x, X_SCALE, X_ZERO), 1)
    away = mean.astype(int) - (made.int_repr().numpy().astype(int) - 128)
    assert np.abs(away).max() <= 1


def test_quantize_and_dequantize_are_those_of_onnx() -> None:
    halves = (np.arange(-300, 300) / 2).astype("float32") * np.float32(0.25)
    scale, zero = np.array(0.25, "float32"), np.array(3, "int8")
    mine = run(ops.QUANTIZE, [halves], 0.25, 3)
    (theirs,) = evaluated("QuantizeLinear", [halves, scale, zero])
    assert (mine == theirs).all()
    (theirs,) = evaluated("DequantizeLinear", [mine, scale, zero])
    assert (run(ops.DEQUANTIZE, [mine], 0.25, 3) == theirs).all()


def evaluated(op: str, values: list[np.ndarray]) -> list[np.ndarray]:
    """What ONNX's reference computes."""
    names = [f"x{k}" for k in range(len(values))]
    infos = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, values, strict=True)
    ]
    node = onnx.helper.make_node(op, names, ["y"])
    graph = onnx.helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name="y")])
    given = dict(zip(names, values, strict=True))
    return ReferenceEvaluator(onnx.helper.make_model(graph)).run(None, given)


CALLS = {
    "convolution": (
        ops.CONVOLUTION,
        [
            drawn(2, 4, 9, 9),
            drawn(8, 4, 3, 3),
            np.arange(8, dtype="int32"),
            np.full(8, 0.01, "float32"),
        ],
        (2, 2, 1, 1, 1, 1, 1, 1, 1, -3, 4, -128, 127),
    ),
    "depthwise": (
        ops.CONVOLUTION,
        [
            drawn(1, 8, 9, 9),
            drawn(8, 1, 3, 3),
            np.arange(8, dtype="int32"),
            np.full(8, 0.1, "float32"),
        ],
        (1, 1, 1, 1, 1, 1, 1, 1, 8, -3, 4, 4, 100),
    ),
    "dense": (
        ops.DENSE,
        [drawn(3, 20), drawn(6, 20), np.arange(6, dtype="int32"), np.full(6, 0.01, "float32")],
        (4, -128, 127),
    ),
    "add": (ops.ADD, [drawn(3, 20), drawn(3, 20)], (1, 2, 0.5, 0.7, 4, -128, 127)),
    "lookup": (ops.LOOKUP, [drawn(3, 20), drawn(256)], ()),
    "quantize": (ops.QUANTIZE, [np.zeros((3, 20), "float32")], (0.1, 3)),
    "dequantize": (ops.DEQUANTIZE, [drawn(3, 20)], (0.1, 3)),
    "max_pool": (ops.MAX_POOL, [drawn(1, 3, 8, 8)], (4, 4, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1)),
    "mean_pool": (ops.MEAN_POOL, [drawn(1, 3, 8, 8)], (1, 1, 8, 8, 1, 1, 0, 0, 0, 0, 3, 1.5, 4)),
}


@pytest.mark.parametrize("optimize", Optimize)
def test_c_computes_what_llvm_computes_bit_by_bit(optimize: Optimize, tmp_path: Path) -> None:
    need_tools("host")
    kernels = []
    for name, (op, tensors, numbers) in CALLS.items():
        lowered = relax.transform.LegalizeOps()(module(op, tensors, *numbers))
        (func,) = (f for _, f in lowered.functions_items() if not isinstance(f, relax.Function))
        kernels.append(prepare_for_target(func, C, name, optimize))
    assert all(is_small(kernel) for kernel in kernels)
    assert differences(kernels, tmp_path) == []


def is_small(kernel: DeviceKernel) -> bool:
    """No kernel stores its sums in int32."""
    return kernel.workspace_bytes < 4 * sum(spec.size_bytes for spec in kernel.outputs)
