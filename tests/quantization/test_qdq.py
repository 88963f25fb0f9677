"""Models that were quantized elsewhere, as ONNX writes them: ONNX's reference is the judge."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_xengine as xe
from tests.vm import computed
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.training.forward.evaluation import evaluation_module

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


class Graph:
    """Writes a network whose tensors are quantized."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self.kind = kind
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.scales: dict[str, float] = {}
        self.count = 0

    def constant(self, name: str, value: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        self.count += 1
        name = f"{op.lower()}{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def quantized(self, x: str, scale: float, zero: int, back: float | None = None) -> str:
        """Quantize and dequantize, as tools write them around a tensor; with another scale `back`."""
        low, _ = RANGES[self.kind]
        self.count += 1
        factor, factor_back, point = (
            self.constant(f"{x}_{name}{self.count}", value)
            for name, value in (
                ("scale", np.array(scale, "float32")),
                ("scale_back", np.array(back or scale, "float32")),
                ("zero", np.array(zero + 128 + low, self.kind)),
            )
        )
        factor_back = factor_back if back else factor
        whole = self.node("QuantizeLinear", [x, factor, point])
        made = self.node("DequantizeLinear", [whole, factor_back, point])
        self.scales[made] = scale
        return made

    def weight(self, name: str, shape: tuple[int, ...], axis: int, *, by_channel: bool) -> str:
        count = shape[axis] if by_channel else 1
        scales = self.random.uniform(0.002, 0.01, count).astype("float32")
        whole = self.random.integers(-127, 128, shape).astype("int8")
        given = [
            self.constant(f"{name}_quantized", whole),
            self.constant(f"{name}_scale", scales if by_channel else scales[0]),
            self.constant(f"{name}_zero", np.zeros(count if by_channel else (), "int8")),
        ]
        return self.node("DequantizeLinear", given, **({"axis": axis} if by_channel else {}))

    def conv(
        self,
        name: str,
        x: str,
        shape: tuple[int, ...],
        *,
        by_channel: bool = True,
        **attributes: object,
    ) -> str:
        weight = self.weight(f"{name}.weight", shape, 0, by_channel=by_channel)
        bias = self.constant(f"{name}.bias", self.random.normal(size=shape[0]).astype("float32"))
        return self.node("Conv", [x, weight, bias], **attributes)

    def model(
        self, shape: tuple[int, ...], output: str, classes: int, kind: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, (shape[0], classes))],
            self.tensors,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        onnx.checker.check_model(model)
        return model


def network(kind: str) -> onnx.ModelProto:
    """Convolutions, a depthwise one, a residual sum, pools, a function of one element, a dense layer."""
    g = Graph(kind)
    x = g.quantized("x", 0.03, -5)
    a = g.conv("stem", x, (8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    a = g.quantized(g.node("Relu", [a]), 0.02, -128)
    b = g.conv("depth", a, (8, 1, 3, 3), pads=[1, 1, 1, 1], group=8, by_channel=False)
    b = g.quantized(g.node("HardSwish", [g.quantized(b, 0.04, 3)]), 0.03, -100)
    b = g.quantized(g.conv("point", b, (8, 8, 1, 1)), 0.05, 10)
    c = g.quantized(g.node("Relu", [g.node("Add", [a, b])]), 0.04, -128)
    c = g.node("MaxPool", [c], kernel_shape=[2, 2], strides=[2, 2])
    c = g.quantized(c, 0.04, -128)
    d = g.quantized(g.node("GlobalAveragePool", [c]), 0.02, -128)
    flat = g.node("Flatten", [d])
    w = g.weight("hidden.weight", (12, 8), 0, by_channel=True)
    bias = g.constant("hidden.bias", g.random.normal(size=12).astype("float32"))
    h = g.quantized(g.node("Relu", [g.node("Gemm", [flat, w, bias], transB=1)]), 0.03, -128)
    last = g.weight("fc.weight", (5, 12), 0, by_channel=False)
    bias = g.constant("fc.bias", g.random.normal(size=5).astype("float32"))
    return g.model((4, 3, 12, 12), g.node("Gemm", [h, last, bias], transB=1), 5)


def outputs(model: ForwardModel, given: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(
        computed(evaluation_module(model), [*given.values(), *model.state.values()])[0]
    )


@pytest.fixture(params=["int8", pytest.param("uint8", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> onnx.ModelProto:
    return network(request.param)


@pytest.fixture
def path(model: onnx.ModelProto, tmp_path: Path) -> Path:
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def training(path: Path, **options: object) -> xe.Training:
    return xe.training_step(path, loss="cross_entropy", optimizer="sgd", **options)


def test_quantized_layers_compute_what_the_file_says(model: onnx.ModelProto, path: Path) -> None:
    """Every int8 tensor is within one step of what ONNX computes in real numbers; all layers are in it."""
    made = training(path, train=["fc.*"], frozen=xe.Int8())
    assert any(note.startswith("4 frozen layers are int8") for note in made.notes)
    ints = {k: v for k, v in made.source.training.state.items() if v.dtype == np.int8}
    assert sum(k.endswith("weight_int8") for k in ints) == 4
    x = np.random.default_rng(1).normal(size=(4, 3, 12, 12)).astype("float32")
    (theirs,) = ReferenceEvaluator(model).run(None, {"x": x})
    mine = outputs(made.source.training, {"x": x})
    weight = made.source.training.state["fc_weight"]
    step = np.abs(weight).sum(axis=1).max() * 0.03  # one step of every element that fc reads
    assert np.abs(mine - theirs).max() <= step
    assert np.abs(mine - theirs).max() <= 0.02 * np.abs(theirs).max()
    assert np.isclose(mine, theirs, atol=1e-5).mean() >= 0.5


def test_integers_of_the_file_are_kept(model: onnx.ModelProto, path: Path) -> None:
    made = training(path, train=["fc.*"], frozen=xe.Int8()).source.training
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    mine = [v for k, v in made.state.items() if k.endswith("weight_int8")]
    for name in ("stem", "depth", "point", "hidden"):
        whole = stored[f"{name}.weight_quantized"]
        assert any(whole.shape == one.shape and (whole == one).all() for one in mine), name


def test_trained_weights_of_a_quantized_file_are_float32(path: Path) -> None:
    made = training(path, train=["fc.*"], frozen=xe.Int8()).source.training
    assert set(made.trained) == {"fc_weight", "fc_bias"}
    assert {str(made.state[name].dtype) for name in made.trained} == {"float32"}


@pytest.mark.slow
def test_samples_win_over_the_scales_of_the_file(path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(8, 3, 12, 12)).astype("float32")
    given = training(path, train=["fc.*"], frozen=xe.Int8()).source.training.state
    found = training(path, train=["fc.*"], frozen=xe.Int8(x)).source.training.state
    factors = [name for name in given if name.endswith("factor")]
    assert any((given[name] != found[name]).any() for name in factors)


def test_a_file_without_scales_needs_samples(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="give samples to calibrate"):
        xe.training_step("lenet", train=["fc*"], batch_size=2, frozen=xe.Int8())


@pytest.mark.slow
def test_scores_of_samples_choose_among_the_layers_of_a_quantized_file(tmp_path: Path) -> None:
    """Those in front of the first chosen one keep the integers of the file."""
    onnx.save(network("int8"), tmp_path / "net.onnx")
    whole, random = training(tmp_path / "net.onnx"), np.random.default_rng(0)
    x = random.normal(size=(16, 3, 12, 12)).astype("float32")
    scores = xe.layer_scores(whole, Data({"x": x, "labels": random.integers(0, 5, 16)}), samples=8)
    assert set(scores) == {"stem", "depth", "point", "hidden", "fc"}
    assert all(score > 0 for score in scores.values())
    report = xe.export_for_target(
        whole,
        tmp_path / "out",
        target="cortex-m4",
        regions={"sram": "9KiB"},
        time_limit_s=5.0,
        train_budget=xe.TrainBudget(scores, frozen=xe.Int8()),
    )
    assert report.choice is not None
    trained = report.choice.is_trained
    assert trained["fc"]
    assert not trained["stem"]
    kept = [value for value in report.package.constants.values() if value.dtype == np.int8]
    weights = {one.name: one for one in network("int8").graph.initializer}
    stem = numpy_helper.to_array(weights["stem.weight_quantized"])
    assert any(stem.shape == one.shape and (stem == one).all() for one in kept)


def stem(g: Graph, zero: int = -5) -> str:
    return g.conv("stem", g.quantized("x", 0.03, zero), (8, 3, 3, 3), pads=[1, 1, 1, 1])


def two_scales(g: Graph) -> str:
    x = stem(g)
    a = g.quantized(g.conv("a", g.quantized(x, 0.02, -31), (4, 8, 1, 1)), 0.06, -8)
    b = g.quantized(g.conv("b", g.quantized(x, 0.06, -31), (4, 8, 1, 1)), 0.09, -8)
    return g.quantized(g.node("Concat", [a, b], axis=1), 0.1, -8)


def also_read_as_it_is(g: Graph) -> str:
    x = g.node("Relu", [stem(g)])
    y = g.quantized(g.conv("a", g.quantized(x, 0.02, -128), (8, 8, 1, 1)), 0.06, -8)
    return g.quantized(g.node("Add", [x, y]), 0.08, -28)


def back_by_another_scale(g: Graph) -> str:
    x = g.quantized(stem(g), 0.06, -31, back=0.05)
    return g.quantized(g.conv("a", x, (4, 8, 1, 1)), 0.09, -8)


def quantized_twice(g: Graph) -> str:
    x = g.quantized(g.quantized(stem(g), 0.06, -31), 0.04, -18)
    return g.quantized(g.conv("a", x, (4, 8, 1, 1)), 0.09, -8)


def no_integer_op(g: Graph) -> str:
    """Its range ends at zero, as where a tool has left out a ReLU."""
    x = g.quantized(stem(g), 0.06, -31)
    other = g.constant("other", g.random.normal(size=(1, 8, 12, 12)).astype("float32"))
    return g.quantized(g.node("Add", [x, other]), 0.03, -128)


def real_weights(g: Graph) -> str:
    """As PyTorch writes a network that was trained with fake quantization."""
    w = g.constant("w", (0.3 * g.random.normal(size=(8, 3, 3, 3))).astype("float32"))
    scale = g.constant("w_scale", g.random.uniform(0.005, 0.012, 8).astype("float32"))
    given = [scale, g.constant("w_zero", np.zeros(8, "int8"))]
    whole = g.node("QuantizeLinear", [w, *given], axis=0)
    w = g.node("DequantizeLinear", [whole, *given], axis=0)
    y = g.node("Conv", [g.quantized("x", 0.03, -5), w], pads=[1, 1, 1, 1])
    return g.quantized(y, 0.06, -28)


def real_weights_of_one_scale(g: Graph) -> str:
    w = g.constant("w", (0.3 * g.random.normal(size=(8, 3, 3, 3))).astype("float32"))
    given = [g.constant("w_scale", np.float32(0.013)), g.constant("w_zero", np.int8(0))]
    w = g.node("DequantizeLinear", [g.node("QuantizeLinear", [w, *given]), *given])
    y = g.node("Conv", [g.quantized("x", 0.03, -5), w], pads=[1, 1, 1, 1])
    return g.quantized(y, 0.06, -28)


PAIRS: Mapping[str, Callable[[Graph], str]] = {
    one.__name__: one
    for one in (
        *(two_scales, also_read_as_it_is, back_by_another_scale, quantized_twice, no_integer_op),
        *(real_weights, real_weights_of_one_scale),
    )
}


def sizes(g: Graph, kind: int) -> Mapping[str, int]:
    """Elements of each tensor that a node makes."""
    graph = helper.make_graph(
        g.nodes, "net", [helper.make_tensor_value_info("x", kind, (2, 3, 12, 12))], [], g.tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return {
        info.name: int(np.prod([d.dim_value for d in info.type.tensor_type.shape.dim]))
        for info in onnx.shape_inference.infer_shapes(model).graph.value_info
    }


def judged(
    g: Graph, made: str, train: list[str], folder: Path, kind: int = TensorProto.FLOAT
) -> tuple[np.ndarray, xe.Training]:
    """How many steps of the last pair our elements are away from what ONNX computes, and the step."""
    count = sizes(g, kind)[made] // 2
    weight = g.constant("fc.weight", np.eye(count, dtype="float32"))
    last = g.node("Gemm", [g.node("Flatten", [made]), weight], transB=1)
    model = g.model((2, 3, 12, 12), last, count, kind)
    onnx.save(model, folder / "net.onnx")
    step = training(folder / "net.onnx", train=train, frozen=xe.Int8())
    x = 1.2 * np.random.default_rng(7).normal(size=(2, 3, 12, 12)).astype("float32")
    x = x if kind == TensorProto.FLOAT else np.clip(40 * x + 128, 0, 255).astype("uint8")
    (theirs,) = ReferenceEvaluator(model).run(None, {"x": x})
    return np.abs(outputs(step.source.training, {"x": x}) - theirs) / g.scales[made], step


@pytest.mark.parametrize("pairs", PAIRS)
def test_what_is_frozen_is_rounded_as_the_file_says(pairs: str, tmp_path: Path) -> None:
    """Also around ops that compute in float32; sums in another order may round another way."""
    g = Graph("uint8")
    steps, step = judged(g, PAIRS[pairs](g), ["fc.*"], tmp_path)
    assert steps.max() <= 2.001  # one of the tensor before, whose scale may be twice as large
    assert (steps > 0.001).mean() <= 0.01
    assert not any("rounded" in note for note in step.notes)


def test_what_is_trained_keeps_the_range_that_the_file_says(tmp_path: Path) -> None:
    """Tools leave a ReLU out whose result is quantized from zero on."""
    g = Graph("int8")
    made = g.quantized(g.conv("a", g.quantized(stem(g), 0.06, -31), (4, 8, 1, 1)), 0.03, -128)
    steps, _ = judged(g, made, ["a.*", "fc.*"], tmp_path)
    assert steps.max() <= 2.5  # where the stem is rounded another way
    assert (steps > 0.501).mean() <= 0.02


def test_a_file_whose_input_is_uint8(tmp_path: Path) -> None:
    g = Graph("uint8")
    given = [g.constant("scale", np.float32(0.03)), g.constant("zero", np.uint8(114))]
    x = g.node("DequantizeLinear", ["x", *given])
    made = g.quantized(g.conv("a", x, (8, 3, 3, 3)), 0.06, -28)
    steps, step = judged(g, made, ["fc.*"], tmp_path, TensorProto.UINT8)
    assert (steps > 0.001).mean() <= 0.01
    assert any("1 frozen layer is int8" in note for note in step.notes)


def test_weights_that_int8_cannot_hold_as_they_are_named(tmp_path: Path) -> None:
    g = Graph("uint8")
    w = g.weight("a.weight", (8, 3, 3, 3), 0, by_channel=True)
    g.tensors[-1].CopyFrom(numpy_helper.from_array(np.full(8, 5, "int8"), g.tensors[-1].name))
    made = g.quantized(g.node("Conv", [g.quantized("x", 0.03, -5), w]), 0.06, -28)
    steps, step = judged(g, made, ["fc.*"], tmp_path)
    assert steps.max() <= 2
    assert any("are rounded to such numbers: conv" in note for note in step.notes)
