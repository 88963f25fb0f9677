"""A Relax module with its own gradient and optimizer goes through TVM's own registry."""

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_xengine as xe
from tvm_xengine.relax_ir.signature import TRAIN_STEP


@I.ir_module
class OwnStep:
    """Gradient descent on |x w|^2, written by hand."""

    @R.function
    def train(x: R.Tensor((8, 4), "float32"), w: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            squares = R.multiply(y, y)
            loss = R.sum(squares)
            twice = R.multiply(y, R.const(2.0, "float32"))
            gradient = R.matmul(R.permute_dims(x), twice)
            scaled = R.multiply(gradient, R.const(0.01, "float32"))
            w_new = R.subtract(w, scaled)
            result = (loss, w_new)
            R.output(result)
        return result


@I.ir_module
class Pooled:
    """A max pooling whose gradient TVM's `FlattenBuffer` alone reads at the wrong places."""

    @R.function
    def main(x: R.Tensor((2, 1, 3, 1), "float32"), w: R.Tensor((1, 1, 3, 1), "float32")):
        with R.dataflow():
            product = R.multiply(x, w)
            y = R.nn.max_pool2d(product, [3, 3], [2, 3], [0, 1, 1, 1])
            R.output(y)
        return y


def test_a_step_of_ones_own_is_scheduled_and_computes_the_same() -> None:
    seen: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _mod: tvm.IRModule, info: object) -> None:
            seen.append(info.name)

    mod = xe.with_step_signature(OwnStep, "train", batch=["x"])
    pipeline = relax.get_pipeline("tvm_xengine", budget="64KiB", costs="roofline", time_limit_s=2.0)
    with tvm.transform.PassContext(opt_level=3, instruments=[Names()]):
        scheduled = pipeline(mod)
    assert {"ScheduleTrainingStep", "ApplySchedule"} <= set(seen)
    x, w = (np.random.default_rng(0).random(s).astype("float32") for s in ((8, 4), (4, 3)))
    target = tvm.target.Target({"kind": "llvm"})
    machine = relax.VirtualMachine(relax.build(scheduled, target), tvm.cpu())
    loss, new = (t.numpy() for t in machine["train"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)))
    np.testing.assert_allclose(loss, np.sum((x @ w) ** 2), rtol=1e-5)
    np.testing.assert_allclose(new, w - 0.02 * x.T @ (x @ w), rtol=1e-5)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_tvm_alone_computes_the_gradients_of_pytorch(is_scheduled: bool) -> None:
    x, w, labels = (
        torch.randn(shape, generator=torch.Generator().manual_seed(2))
        for shape in ((2, 1, 3, 1), (1, 1, 3, 1), (2, 1, 1, 1))
    )
    training = xe.training_step(
        Pooled, loss="mse", optimizer=xe.SGD(0.1), params={"w": w.numpy().copy()}
    )
    mod = training.step.mod
    if is_scheduled:
        mod = relax.get_pipeline("tvm_xengine", costs="roofline", time_limit_s=1.0)(mod)
    machine = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    values = {"x": x.numpy(), "labels": labels.numpy(), "lr": np.float32(0.1), "w": w.numpy()}
    inputs = [values[param.name] for param in mod[TRAIN_STEP].params]
    loss, new = (made.numpy() for made in machine[TRAIN_STEP](*map(tvm.runtime.tensor, inputs)))
    w.requires_grad_()
    padded = functional.pad(x * w, (1, 1, 0, 1), value=float("-inf"))
    expected = functional.mse_loss(functional.max_pool2d(padded, 3, (2, 3)), labels)
    expected.backward()
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-6)
    np.testing.assert_allclose(new, (w - 0.1 * w.grad).detach().numpy(), rtol=1e-6)


def test_a_training_step_of_ours_goes_through_the_registry_too() -> None:
    training = xe.training_step("mlp", batch_size=2)
    pipeline = relax.get_pipeline("tvm_xengine", costs="roofline", time_limit_s=1.0)
    assert TRAIN_STEP in [var.name_hint for var in pipeline(training.step.mod).get_global_vars()]


def test_a_parameter_that_is_not_there_is_refused() -> None:
    with pytest.raises(xe.XEngineError, match=r"no parameters \['v'\]"):
        xe.with_step_signature(OwnStep, "train", batch=["v"])


def test_a_module_without_a_marked_step_is_refused() -> None:
    with pytest.raises(xe.XEngineError, match="mark one with with_step_signature"):
        relax.get_pipeline("tvm_xengine")(OwnStep)


def test_a_tuple_among_the_results_is_refused() -> None:
    @I.ir_module
    class Nested:
        @R.function
        def train(x: R.Tensor((), "float32"), w: R.Tensor((), "float32")):
            with R.dataflow():
                result = (R.multiply(x, w), (R.add(x, w), R.subtract(x, w)))
                R.output(result)
            return result

    with pytest.raises(xe.XEngineError, match="result 1 of train is a tuple itself"):
        xe.with_step_signature(Nested, "train", batch=["x"], updates={"w": 1})
