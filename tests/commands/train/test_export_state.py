"""An ONNX file with trained tensors predicts what the trained step does, in ONNX's own evaluator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.commands.in_process import run_command
from tvm_xengine.relax_ir.types import Array

RANDOM = np.random.default_rng(0)
BATCH, CLASSES = 4, 5


def drawn(*shape: int) -> Array:
    return (0.3 * RANDOM.normal(size=shape)).astype("float32")


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    tensors: dict[str, Array],
    x: tuple[int, ...],
    x_type: int = TensorProto.FLOAT,
    *,
    is_external: bool = False,
) -> None:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", x_type, x)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [x[0], CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=is_external,
        location="weights.bin",
        size_threshold=0,
    )


def convolutional(path: Path, *, is_external: bool = False) -> Array:
    """A convolution, a batch norm and a linear layer."""
    nodes = [
        helper.make_node("Conv", ["x", "conv", "bias"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "linear", "last"], ["out"], name="fc", transB=1),
    ]
    tensors = {
        "conv": drawn(3, 1, 3, 3),
        "bias": drawn(3),
        "gamma": drawn(3) + 1,
        "beta": drawn(3),
        "mean": drawn(3),
        "var": np.ones(3, "float32"),
        "linear": drawn(CLASSES, 48),
        "last": drawn(CLASSES),
    }
    saved(path, nodes, tensors, (BATCH, 1, 4, 4), is_external=is_external)
    return drawn(24, 1, 4, 4)


def external(path: Path) -> Array:
    return convolutional(path, is_external=True)


def shared(path: Path) -> Array:
    """Two layers of one matrix."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="cell"),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "w"], ["b"], name="cell"),
        helper.make_node("Tanh", ["b"], ["u"]),
        helper.make_node("MatMul", ["u", "o"], ["out"], name="head"),
    ]
    saved(path, nodes, {"w": drawn(6, 6), "o": drawn(6, CLASSES)}, (BATCH, 6))
    return drawn(24, 6)


def tied(path: Path) -> Array:
    """A table of which the last product holds a transposed copy."""
    table = drawn(CLASSES, 4)
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("MatMul", ["m", "turned"], ["out"]),
    ]
    tensors = {"table": table, "w": drawn(4, 4), "turned": np.ascontiguousarray(table.T)}
    saved(path, nodes, tensors, (BATCH,), TensorProto.INT64)
    return RANDOM.integers(0, CLASSES, 24)


FROZEN = ("--freeze", "conv", "w", "bias")


@pytest.mark.parametrize(
    ("network", "frozen"),
    [
        (convolutional, FROZEN),
        (external, ()),
        *(pytest.param(each, (), marks=pytest.mark.slow) for each in (shared, tied)),
        pytest.param(convolutional, (), marks=pytest.mark.slow),
        *(pytest.param(each, FROZEN, marks=pytest.mark.slow) for each in (external, shared, tied)),
    ],
)
def test_an_exported_file_predicts_as_the_trained_step_does(
    network: Callable[[Path], Array], frozen: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    model, data, state = tmp_path / "m.onnx", tmp_path / "data.npz", tmp_path / "s.safetensors"
    x = network(model)
    y = RANDOM.integers(0, CLASSES, len(x))
    np.savez(data, x=x, y=y)
    untrained = onnx.load(str(model))
    if frozen:
        names = {tensor.name for tensor in untrained.graph.initializer}
        frozen = tuple(one for one in frozen if one == "--freeze" or one in names)
    given = ("--data", str(data), "--loss", "cross_entropy", "--cache", str(cache))
    quick = ("--costs", "roofline", "--solver", "greedy", "--no-compare", "--steps", "12")
    done = run_command(
        *("train", str(model), *given, *quick, "--optimizer", "adam", "--save", str(state), *frozen)
    )
    assert done.returncode == 0, done.stderr
    scored = run_command("eval", str(model), *given, "--state", str(state), "--json", "-")
    trained = tmp_path / "trained.onnx"
    assert (
        run_command("export-state", str(state), "--onnx", str(model), "-o", str(trained)).returncode
        == 0
    )
    written = onnx.load(str(trained))
    onnx.checker.check_model(written)
    assert _loss(written, x, y) == pytest.approx(json.loads(scored.stdout)["loss"], rel=1e-5)
    assert _loss(untrained, x, y) != pytest.approx(_loss(written, x, y), rel=1e-4)
    before, after = _tensors(untrained), _tensors(written)
    assert all(np.array_equal(before[name], after[name]) for name in frozen[1:])


def _loss(model: onnx.ModelProto, x: Array, y: Array) -> float:
    run = ReferenceEvaluator(model).run
    batches = [run(None, {"x": x[i : i + BATCH]})[0] for i in range(0, len(x), BATCH)]
    logits = np.concatenate(batches).astype("float64")
    chosen = logits[np.arange(len(y)), y]
    return float(np.mean(np.log(np.exp(logits).sum(1)) - chosen))


def _tensors(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_a_nan_in_the_state_is_told_by_its_tensor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"fc.weight": np.ones((2, 3), np.float32), "steps": np.array(3)}
    state["fc.weight"][1, 1] = np.nan
    np.savez(tmp_path / "diverged.npz", **state)
    done = run_command(
        "export-state", str(tmp_path / "diverged.npz"), "-o", str(tmp_path / "state.safetensors")
    )
    assert done.returncode == 0
    assert [record.getMessage() for record in caplog.records] == [
        "fc.weight of the state has a NaN in 1 of 6 elements"
    ]
