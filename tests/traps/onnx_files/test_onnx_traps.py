"""Unusual ONNX files compute what ONNX says and train as in PyTorch, or are refused with advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import tvm_xengine as xe
from tests.databases.vjp import evaluate
from tests.traps.onnx_files.exported import EXPORTED
from tests.traps.onnx_files.graphs import IMAGES, V, W, branch, graph, info, model, node
from tests.traps.onnx_files.trained import TRAINED
from tests.traps.onnx_files.values import VALUES
from tests.traps.training import Trap, differences
from tvm_xengine.frontends.onnx.importer import import_model, load_model_file
from tvm_xengine.frontends.roles import Use

FAST = (
    "an initialiser a.b beside a tensor a_b",
    "branches of equal names, else",
    "one tensor under two names",
    "ones that the code adds",
    "a loss that an older operator set defines",
)


def marked(names: object) -> list[object]:
    return [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in names  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("name", marked(VALUES))
def test_values_are_those_that_onnx_defines(name: str) -> None:
    case = VALUES[name]
    wanted = case.wanted
    if wanted is None:
        (wanted,) = ReferenceEvaluator(case.model).run(None, {"x": case.x})
    made = evaluate(import_model("model", case.model, train_norms=False), [case.x], {})
    np.testing.assert_allclose(made.outputs[0], wanted, rtol=1e-5, atol=1e-6)


def of_file(
    made: onnx.ModelProto, folder: Path, **options: object
) -> Callable[[Trap, nn.Module, torch.Tensor], xe.Training]:
    onnx.save(made, folder / "model.onnx")

    def training(_trap: Trap, _module: nn.Module, _targets: torch.Tensor) -> xe.Training:
        optimizer = xe.SGD(0.05, momentum=0.9, weight_decay=0.01)
        return xe.training_step(folder / "model.onnx", loss="mse", optimizer=optimizer, **options)

    return training


@pytest.mark.parametrize("name", marked(TRAINED))
def test_steps_of_a_file_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    case = TRAINED[name]
    assert not differences(case.trap, of_file(case.model, tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTED)
def test_steps_of_an_exported_module_are_its_own(name: str, tmp_path: Path) -> None:
    case = EXPORTED[name]
    made, module = case.model(), case.trap.module
    stored = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    # The exporter in training mode runs the module, which changes running statistics.
    known = {
        k: torch.tensor(stored[k]) for k in module.state_dict() if "running" in k and k in stored
    }
    module.load_state_dict(known, strict=False)
    options = {"batch_size": len(case.trap.inputs[0])} if case.batch_size else {}
    assert not differences(replace(case.trap, module=module), of_file(made, tmp_path, **options))


def test_a_norm_without_scale_trains_none() -> None:
    stored = {"/n/Constant_output_0": np.ones(3, "float32"), "shift": np.zeros(3, "float32")}
    made = model(
        [node("InstanceNormalization", "x /n/Constant_output_0 shift", "y")], stored, x=IMAGES.shape
    )
    uses = {role.name: role.use for role in import_model("model", made).roles}
    assert uses == {"/n/Constant_output_0": Use.CONSTANT, "shift": Use.TRAINED}


def test_batch_norms_that_a_file_has_for_inference_are_told() -> None:
    norm = node("BatchNormalization", "x s b m v", "y")
    stored = {name: np.ones(3, "float32") for name in "bmv"} | {"s": W[0, :3]}
    (note,) = import_model("model", model([norm], stored, x=IMAGES.shape)).notes
    assert "for inference and has 1 batch norms" in note
    drop = [node("Dropout", "x r yes", "d mask"), norm]
    drop[1].input[0] = "d"
    stored |= {"r": np.float32(0.5), "yes": np.array(True)}
    made = import_model("model", model(drop, stored, x=IMAGES.shape))
    assert not made.notes
    assert "training=False" in str(made.mod)


def test_a_file_for_another_batch_size_is_told() -> None:
    (note,) = import_model(
        "model", model([node("MatMul", "x w", "y")], {"w": W}), batch_size=5
    ).notes
    assert "batches of 3" in note


def test_training_information_is_told() -> None:
    made = model([node("MatMul", "x w", "y")], {"w": W})
    made.training_info.add().algorithm.CopyFrom(
        graph([node("Neg", "x", "y")], inputs=[info("x", ())])
    )
    (note,) = import_model("model", made).notes
    assert "training_info" in note


def _twice_stored() -> onnx.ModelProto:
    made = model([node("MatMul", "x w", "y")], {"w": W})
    made.graph.initializer.append(numpy_helper.from_array(V, "w"))
    return made


def _twice_in_branch() -> onnx.ModelProto:
    inner = graph([node("Neg", "x", "z"), node("Exp", "x", "z")], outputs=("z",))
    nodes = [node("If", "yes", "y", then_branch=inner, else_branch=branch("Add", W[:3]))]
    return model(nodes, {"yes": True})


def _of_values() -> onnx.ModelProto:
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "is"),
        node("If", "is", "y", then_branch=branch("Mul", W[:3]), else_branch=branch("Add", V[:3])),
    ]
    return model(nodes, {"zero": np.float32(0)})


def _half() -> onnx.ModelProto:
    nodes = [node("Cast", "w", "f", to=TensorProto.FLOAT), node("MatMul", "x f", "y")]
    return model(nodes, {"w": W.astype("float16")})


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "two initialisers of one name": (_twice_stored, "'w', which another tensor has"),
    "two tensors of one name": (
        lambda: model([node("Neg", "x", "h"), node("Exp", "x", "h"), node("Relu", "h", "y")]),
        "Exp makes a tensor with the name 'h'",
    ),
    "a tensor with the name of an input": (
        lambda: model([node("Neg", "x", "x"), node("Relu", "x", "y")]),
        "the name 'x', which another",
    ),
    "two tensors of one name in a branch": (_twice_in_branch, "the name 'z', which another"),
    "a branch that depends on values": (_of_values, "condition is computed.*export one"),
    "slopes that fit no axis": (
        lambda: model([node("PRelu", "x b", "y")], {"b": W[0, :3]}, x=IMAGES.shape),
        "do not broadcast",
    ),
    "an operator set that cannot be converted": (
        lambda: model([node("Less", "x b", "c", broadcast=1, axis=0)], {"b": W[0, :3]}, opset=5),
        "opset 5, which ONNX cannot convert to 7",
    ),
    "a batch norm of version 7 for each element": (
        lambda: model(
            [node("BatchNormalization", "x s s s s", "y", spatial=0)],
            {"s": np.ones((3, 5, 5), "float32")},
            x=IMAGES.shape,
            opset=7,
        ),
        r"cannot be imported: relax.nn.batch_norm requires .*mend the graph",
    ),
    "sequences of several lengths": (
        lambda: model(
            [node("RNN", "x w r - l", "y", hidden_size=4)],
            {"w": W[None], "r": W[None], "l": np.array([3, 2, 1], "int32")},
            x=(4, 3, 4),
        ),
        "several lengths",
    ),
    "an open dimension": (
        lambda: model([node("MatMul", "x w", "y")], {"w": W}, x=("n", 4)),
        "dynamic dimensions.*batch size",
    ),
    "weights of float16": (_half, "float16 in w; store them as float32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_step_cannot_mean_is_refused_with_advice(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    onnx.save(make(), tmp_path / "model.onnx")
    with pytest.raises(xe.XEngineError, match=message):
        xe.training_step(tmp_path / "model.onnx", loss="mse", optimizer="sgd")


def test_a_batch_that_the_file_cannot_take_is_refused_with_advice() -> None:
    made = model([node("Reshape", "x s", "y")], {"s": [2, 6]})
    with pytest.raises(xe.XEngineError, match="for batches of 3: export it with an open batch"):
        import_model("model", made, batch_size=5)


def _outside(name: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4, 4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    return tensor


def _in_function() -> onnx.ModelProto:
    constant = node("Constant", "", "w", value=_outside("w"))
    opsets = [helper.make_opsetid("", 17)]
    nodes = [constant, node("MatMul", "x w", "y")]
    function = helper.make_function("own", "Layer", ["x"], ["y"], nodes, opsets)
    return model([node("Layer", "x", "y", domain="own")], functions=[function])


def _in_training_info() -> onnx.ModelProto:
    made = model([node("MatMul", "x w", "y")], {"w": W})
    made.training_info.add().initialization.initializer.append(_outside("w"))
    return made


def _in_sparse_constant() -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(values=_outside("w"), dims=[4, 4])
    return model([node("Constant", "", "w", sparse_value=sparse), node("MatMul", "x w", "y")])


@pytest.mark.parametrize("make", [_in_function, _in_training_info, _in_sparse_constant])
def test_no_tensor_is_read_outside_the_models_folder(
    make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(W.tobytes())
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "model.onnx"
    path.write_bytes(make().SerializeToString())
    with pytest.raises(xe.XEngineError, match=r"'\.\./secret', outside the model's folder"):
        load_model_file(path)
