"""Another package adds an operator of PyTorch and ONNX, its gradient, and a kind of device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from tvm import relax
from tvm.ir.op import register_op_attr

from tests.extensions.toy_package import installed
from tests.kernels.onednn.test_devices import batch_for, built, problem_of
from tests.training.autograd import exported, worst_gradient_error
from tests.training.running import ReferenceRun
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.errors import (
    ExtensionError,
    InvalidPlatformError,
    MissingGradientError,
    UnsupportedModelError,
)
from tvm_xengine.extensions.extended import extended
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.build import build_training_step

TOY = """
import torch
import tvm
from tvm import ir, relax
from tvm.ir.op import register_op_attr
from tvm_xengine.kernels.device_kinds import PROCESSOR, DeviceKind
from tvm_xengine.training.rule import Linearized

compiled = []


def cube(builder, x):
    return builder.emit(relax.Call(ir.Op.get("toy.cube"), [x]))


def cube_of_node(node):
    return cube(node.builder, node.input(0))


def gradient_of_cube(emitter, site):
    (x,) = site.operands
    square = emitter.bind(relax.op.multiply(x, x), "square")

    def pull_back(gradients):
        three = relax.const(3.0, str(x.ty.dtype))
        slope = emitter.bind(relax.op.multiply(three, square), "slope")
        return (emitter.bind(relax.op.multiply(gradients[0], slope), site.grad_name(0)),)

    return Linearized((emitter.bind(relax.op.multiply(square, x), site.name),), pull_back)


def compile_on_llvm(module, target):
    compiled.append(len(module.functions))
    llvm = tvm.target.Target({"kind": "llvm"})
    return PROCESSOR.compile(tvm.tirx.transform.BindTarget(llvm.with_host(llvm))(module), llvm)


DEVICE = DeviceKind(PROCESSOR.lower, compile_on_llvm, lambda target: tvm.cpu(0))
"""

GROUPS = {
    "torch_operators": "cube.default = toy:cube\nlost = toy:nowhere",
    "onnx_operators": "Cube = toy:cube_of_node",
    "gradients": "toy.cube = toy:gradient_of_cube",
    "device_kinds": "test = toy:DEVICE",
}
WITHOUT_GRADIENT = {group: lines for group, lines in GROUPS.items() if group != "gradients"}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(TOY, GROUPS, tmp_path, monkeypatch):
        yield


@pytest.fixture(scope="module", autouse=True)
def cube() -> Iterator[None]:
    """The operator itself, in the registries of PyTorch and TVM, which this project does not own."""

    def type_of_operand(call: relax.Call, _builder: relax.BlockBuilder) -> relax.TensorType:
        return call.args[0].ty

    register_op_attr("toy.cube", "FInferType", type_of_operand)
    register_op_attr("toy.cube", "FPurity", True)
    with torch.library._scoped_library("toy", "DEF") as library:
        library.define("cube(Tensor x) -> Tensor")
        library.impl("cube", lambda x: x * x * x, "CompositeExplicitAutograd")
        torch.library.register_fake("toy::cube", torch.empty_like, lib=library)
        torch.library.register_autograd(
            "toy::cube",
            lambda ctx, above: above * 3 * ctx.saved_tensors[0].square(),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
            lib=library,
        )
        yield


class Cubed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.toy.cube(self.row(x))


def cubed_file(module: Cubed, x: torch.Tensor) -> onnx.ModelProto:
    """The module as an ONNX file, whose operator has the toy's own domain."""
    weights = {"weight": module.row.weight, "bias": module.row.bias}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "weight", "bias"], ["row"], transB=1),
            helper.make_node("Cube", ["row"], ["y"], domain="toy"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, (len(x), 5))],
        [numpy_helper.from_array(w.detach().numpy(), name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("toy", 1)]
    return helper.make_model(graph, opset_imports=opsets)


@pytest.fixture(scope="module")
def module() -> Cubed:
    torch.manual_seed(0)
    return Cubed().double()


X, LABELS = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 6), torch.tensor([0, 4, 1, 2])


@pytest.mark.usefixtures("toy")
def test_an_operator_of_pytorch_is_imported_and_differentiated(module: Cubed) -> None:
    module.zero_grad()
    assert worst_gradient_error(exported(module, X), module, X, LABELS) < 1e-9


@pytest.mark.usefixtures("toy")
def test_an_operator_of_onnx_is_imported_and_differentiated(module: Cubed) -> None:
    run = ReferenceRun(build_training_step(import_model("cubed", cubed_file(module, X))))
    module.zero_grad()
    loss = nn.functional.cross_entropy(module(X), LABELS)
    loss.backward()
    assert run(X.numpy(), LABELS.numpy())["loss"] == pytest.approx(loss.item(), rel=1e-9)
    assert module.row.weight.grad is not None
    np.testing.assert_allclose(run.gradients()["weight"], module.row.weight.grad, rtol=1e-9)


def test_without_the_package_its_operators_are_refused_by_name(module: Cubed) -> None:
    with pytest.raises(UnsupportedModelError, match="cube"):
        exported(module, X)
    with pytest.raises(UnsupportedModelError, match="Cube"):
        import_model("cubed", cubed_file(module, X))


def test_an_operator_without_its_gradient_is_refused_by_name(
    module: Cubed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(TOY, WITHOUT_GRADIENT, tmp_path, monkeypatch):
        model = exported(module, X)
        with pytest.raises(MissingGradientError, match=r"toy\.cube \(in cube"):
            build_training_step(model)


def trained_on(device: Device) -> dict[str, np.ndarray]:
    training = build_training_step(load_model("mlp", batch_size=2))
    step = lower_step(training.mod, Platform((device,)))
    executable = built(step, plan_keep_all(problem_of(step), device.name), training)
    for seed in range(2):
        executable.step(batch_for(executable, seed))
    return executable.read_state()


@pytest.mark.usefixtures("toy")
def test_a_kind_of_device_computes_a_step() -> None:
    found = trained_on(Device("toy", "test"))
    assert sum(sys.modules["toy"].compiled) > 3
    expected = trained_on(Device("cpu", "llvm"))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7)


def test_without_the_package_its_kind_of_device_is_refused() -> None:
    with pytest.raises(InvalidPlatformError, match="no code for kind 'test'"):
        resolve_target("test")


@pytest.mark.usefixtures("toy")
def test_what_cannot_be_loaded_is_named_when_it_is_used() -> None:
    table = extended("torch_operators", {"own": 1})
    assert table["own"] == 1
    with pytest.raises(ExtensionError, match=r"'lost' of the entry points .*toy:nowhere"):
        extended("tvm_xengine.torch_operators", {})["lost"]


@pytest.mark.usefixtures("toy")
def test_no_package_replaces_an_entry_of_this_one() -> None:
    table = extended("tvm_xengine.torch_operators", {"cube.default": 1})
    assert table["cube.default"] == 1
    assert set(table) == {"cube.default", "lost"}
