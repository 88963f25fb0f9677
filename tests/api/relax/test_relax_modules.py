"""Relax modules of users are compiled: forward ones, and training steps of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_xengine as xe
from tests.api.relax.relax_modules import (
    Forward,
    Momentum,
    momentum_in_numpy,
    momentum_state,
    own_step,
)
from tests.conftest import Compile
from tests.vm import reference_vm
from tvm_xengine.scheduling.schedule import Compute

RANDOM = np.random.default_rng(0)


def forward_params() -> dict[str, np.ndarray]:
    shapes = {"w1": (6, 16), "b1": (16,), "w2": (16, 5)}
    random = np.random.default_rng(2)
    return {name: random.standard_normal(s).astype("float32") for name, s in shapes.items()}


def test_a_forward_module_is_trained_as_pytorch_trains_it(compile_step: Compile) -> None:
    params = forward_params()
    step = compile_step(Forward, loss="cross_entropy", optimizer=xe.SGD(0.1), params=params)
    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    optimizer = torch.optim.SGD(theirs.values(), 0.1)
    for _ in range(4):
        x, labels = torch.randn(8, 6), torch.randint(0, 5, (8,))
        scores = torch.tanh(x @ theirs["w1"] + theirs["b1"]) @ theirs["w2"]
        expected = functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert step(x, labels) == pytest.approx(expected.item(), rel=1e-5)
    for name, value in step.state_dict().items():
        np.testing.assert_allclose(value, theirs[name].detach().numpy(), rtol=1e-4, atol=1e-6)
    predicted = step.eval()(x)
    scores = torch.tanh(x @ theirs["w1"] + theirs["b1"]) @ theirs["w2"]
    np.testing.assert_allclose(predicted, scores.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_values_that_a_front_end_left_in_the_module_are_taken(compile_step: Compile) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    program = torch.export.export(model, (torch.randn(2, 6),))
    mod = from_exported_program(program, keep_params_as_input=True, unwrap_unit_return_tuple=True)
    step = compile_step(mod, loss="cross_entropy", optimizer=xe.SGD(0.1))
    x, labels = torch.randn(2, 6), torch.tensor([0, 2])
    expected = functional.cross_entropy(model(x), labels).item()
    assert step(x, labels) == pytest.approx(expected, rel=1e-5)


def test_a_module_without_parameters_says_what_to_give() -> None:
    with pytest.raises(xe.XEngineError, match=r"values of some of x, w1, b1, w2 as\s`params`"):
        xe.training_step(Forward, loss="cross_entropy")


@pytest.mark.parametrize("budget", [None, "2KiB"])
def test_a_step_of_ones_own_is_that_of_numpy(compile_step: Compile, budget: str | None) -> None:
    step = compile_step(own_step(), params=momentum_state(), budget=budget)
    expected = momentum_state()
    for rate in (0.1, 0.05, 0.02, 0.1):
        x, y = (RANDOM.standard_normal(shape).astype("float32") for shape in ((8, 4), (8, 3)))
        loss, expected = momentum_in_numpy(expected, x, y, rate)
        assert step(x, y, rate=rate) == pytest.approx(loss, rel=1e-5)
    assert list(step.results) == ["loss", "guess"]
    found = step.state_dict()
    assert found["steps"] == 4
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


def test_a_step_of_ones_own_resumes_from_its_checkpoint(
    compile_step: Compile, tmp_path: Path
) -> None:
    x, y = (RANDOM.standard_normal(shape).astype("float32") for shape in ((8, 4), (8, 3)))
    step = compile_step(own_step(), params=momentum_state())
    step(x, y, rate=0.1)
    step.save(tmp_path / "own.ckpt")
    losses = [float(step(x, y, rate=0.1)) for _ in range(3)]
    other = compile_step(own_step(), params=momentum_state())
    other.load(tmp_path / "own.ckpt")
    assert [float(other(x, y, rate=0.1)) for _ in range(3)] == losses


def test_what_a_step_of_ones_own_cannot_do_is_said(compile_step: Compile) -> None:
    step = compile_step(own_step(), params=momentum_state())
    assert "trained: w, velocity" in step.report()
    with pytest.raises(xe.XEngineError, match="without a function that predicts"):
        step.eval()(np.zeros((8, 4), "float32"))
    with pytest.raises(xe.XEngineError, match="its own loss and optimizer"):
        step.optimizer_state_dict()
    with pytest.raises(TypeError, match="its own loss and optimizer"):
        xe.compile(own_step(), params=momentum_state(), optimizer="adam")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": ["z"]}, r"no parameters \['z'\]"),
        ({"batch": ["x"], "updates": {"w": "gone"}}, "returns no 'gone'"),
        ({"batch": ["x"], "updates": {"w": 9}}, "returns no 9"),
        ({"batch": ["x"], "updates": {"w": "guess"}}, "what replaces it"),
        ({"batch": ["x"], "updates": {"x": "guess"}}, "given for each step"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(options: dict, message: str) -> None:
    with pytest.raises(xe.XEngineError, match=message):
        xe.with_step_signature(Momentum, "train", **options)


def test_values_that_do_not_fit_are_refused() -> None:
    state = momentum_state()
    with pytest.raises(xe.XEngineError, match=r"\['steps'\] are missing"):
        xe.training_step(own_step(), params={n: v for n, v in state.items() if n != "steps"})
    with pytest.raises(xe.XEngineError, match=r"w must have shape \(4, 3\)"):
        xe.training_step(own_step(), params={**state, "w": np.zeros(4, "float32")})
    mod = xe.with_step_signature(Momentum, "train", batch=["x", "y"], hyper=["rate"])
    with pytest.raises(xe.XEngineError, match="must return its loss first"):
        xe.training_step(mod, params=state)


def test_tvms_usual_pipeline_compiles_a_scheduled_step() -> None:
    pipeline = relax.get_pipeline(
        "tvm_xengine", budget="4KiB", costs="roofline", time_limit_s=2.0, func_name="train"
    )
    machine = reference_vm(pipeline(own_step()))
    state = momentum_state()
    x, y = (RANDOM.standard_normal(shape).astype("float32") for shape in ((8, 4), (8, 3)))
    given = {**state, "x": x, "y": y, "rate": np.float32(0.1)}
    order = [param.name for param in Momentum["train"].params]
    results = machine["train"](*(tvm.runtime.tensor(np.asarray(given[name])) for name in order))
    loss, expected = momentum_in_numpy(state, x, y, 0.1)
    found = dict(zip(("loss", "guess", "w", "velocity", "steps"), results, strict=True))
    assert float(found["loss"].numpy()) == pytest.approx(loss, rel=1e-5)
    for name in ("w", "velocity", "steps"):
        np.testing.assert_allclose(found[name].numpy(), expected[name], rtol=1e-4, atol=1e-6)


@I.ir_module
class Placed:
    @R.function
    def main(x: R.Tensor((8, 6), "float32"), w: R.Tensor((6, 6), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            there = R.hint_on_device(lv, R.device(1, 1))
            y = R.nn.relu(there)
            here = R.hint_on_device(y, R.device(1, 0))
            scores = R.matmul(here, w)
            R.output(scores)
        return scores


def two_devices() -> xe.Platform:
    devices = (xe.Device("first", "llvm"), xe.Device("second", "llvm"))
    links = (xe.Link("first", "second", 1.0, 10.0), xe.Link("second", "first", 1.0, 10.0))
    return xe.Platform(devices, links)


def test_a_hint_ties_the_op_that_makes_a_value_to_a_device(compile_step: Compile) -> None:
    w = RANDOM.standard_normal((6, 6)).astype("float32")
    options = {"loss": "cross_entropy", "optimizer": xe.SGD(0.1), "params": {"w": w}}
    step = compile_step(Placed, platform=two_devices(), **options)
    pinned = step.plan.plan.problem.constraints.pinned
    assert sorted(pinned.values()) == ["first", "second"]
    steps = step.plan.plan.schedule.steps
    computed = {one.op: one.device for one in steps if isinstance(one, Compute)}
    assert {op: computed[op] for op in pinned} == dict(pinned)
    x, labels = torch.randn(8, 6), torch.randint(0, 6, (8,))
    expected = functional.cross_entropy(torch.relu(x @ torch.tensor(w)) @ torch.tensor(w), labels)
    assert step(x, labels) == pytest.approx(expected.item(), rel=1e-5)


def test_a_hint_on_a_device_that_is_not_there_is_refused(compile_step: Compile) -> None:
    with pytest.raises(xe.XEngineError, match=r"R.device\(1, 1\), which the\s+platform has not"):
        compile_step(Placed, loss="cross_entropy", params={"w": np.zeros((6, 6), "float32")})


def test_checkpoints_are_computed_again(compile_step: Compile) -> None:
    step = compile_step(Forward, loss="cross_entropy", params=forward_params())
    graph = step.plan.plan.problem.graph
    hidden = [op for op in graph.ops if {"x", "w1", "b1"} <= set(op.inputs)]
    loss = graph.op_index[graph.producer[graph.outputs[0]]]
    assert [graph.op_index[op.name] > loss for op in hidden] == [False, True]
    assert len({op.kernel for op in hidden}) == 1


def test_the_arguments_of_a_step_are_in_its_order_and_none_is_forgotten() -> None:
    training = xe.training_step("mlp", batch_size=2, optimizer=xe.SGD(0.5))
    batch = {"labels": np.zeros(2, "int64"), "x": np.zeros((2, 64), "float32")}
    x, labels, rate = training.arguments(batch)
    assert x is batch["x"]
    assert labels is batch["labels"]
    assert rate == 0.5
    assert training.arguments(batch, lr=0.25)[-1] == 0.25
    with pytest.raises(xe.XEngineError, match="x, labels, lr; labels is missing"):
        training.arguments({"x": batch["x"]})
