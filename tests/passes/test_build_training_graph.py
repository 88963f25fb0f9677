"""The pass that makes a training step of a module."""

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.passes.build_training_graph import BuildTrainingGraph
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe

PLAIN = Recipe(loss=MEAN_SQUARED_ERROR, optimizer=SGD())


@I.ir_module
class Forward:
    @R.function
    def main(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


def _bindings(function: relax.Function) -> dict[str, str]:
    """Operator or kernel of every call, by the name of its binding."""
    return {
        binding.var.name: str(binding.value.op.name).removeprefix("relax.")
        if binding.value.op.name != "relax.call_tir"
        else binding.value.args[0].name_hint
        for binding in function.body.blocks[0].bindings
        if isinstance(binding.value, relax.Call)
    }


def test_step_is_forward_loss_backward_and_update() -> None:
    step = BuildTrainingGraph(["w"], recipe=PLAIN)(Forward)["train_step"]
    assert [param.name for param in step.params] == ["x", "labels", "lr", "w"]
    assert _bindings(step) == {
        "y": "matmul",
        "loss": "mean_squared_error_forward",
        "loss_backward": "mean_squared_error_backward",
        "w_grad": "batch_matmul",
        "w_new": "sgd_update",
    }
    assert list(step.attrs["tvm_xengine.roles"]) == ["batch", "batch", "hyper", "parameter"]
    assert list(step.attrs["tvm_xengine.updates"]) == [3]
    assert list(step.attrs["tvm_xengine.results"]) == ["loss"]


def test_input_module_is_not_changed() -> None:
    before = tvm.IRModule(Forward.functions)
    BuildTrainingGraph(["w"], recipe=PLAIN)(Forward)
    tvm.ir.assert_structural_equal(Forward, before)


def test_kernels_say_what_they_compute() -> None:
    mod = BuildTrainingGraph(["w"], recipe=PLAIN)(Forward)
    kernels = {
        var.name_hint: str(func.attrs[KERNEL_ATTR])
        for var, func in mod.functions.items()
        if not isinstance(func, relax.Function)
    }
    assert kernels == {name: name for name in kernels}


def test_every_binding_has_its_own_name() -> None:
    step = BuildTrainingGraph(["w"])(Forward)["train_step"]
    names = [binding.var.name for binding in step.body.blocks[0].bindings]
    names += [param.name for param in step.params]
    assert len(names) == len(set(names))


def test_module_without_main_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="expected a Relax function main"):
        BuildTrainingGraph(["w"])(tvm.IRModule({}))


def test_parameters_that_do_not_matter_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="nothing to train"):
        BuildTrainingGraph(["v"])(Forward)
