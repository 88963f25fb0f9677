"""Relax modules as users of TVM write them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_xengine as xe
from tvm_xengine.relax_ir.types import Array


@I.ir_module
class Forward:
    """A perceptron whose hidden layer is a checkpoint."""

    @R.function
    def main(
        x: R.Tensor((8, 6), "float32"),
        w1: R.Tensor((6, 16), "float32"),
        b1: R.Tensor((16,), "float32"),
        w2: R.Tensor((16, 5), "float32"),
    ):
        with R.dataflow():
            start = R.grad.start_checkpoint(x)
            hidden = R.tanh(R.add(R.matmul(start, w1), b1))
            end = R.grad.end_checkpoint(hidden)
            scores = R.matmul(end, w2)
            R.output(scores)
        return scores


@I.ir_module
class Momentum:
    """Linear regression with a gradient and an optimizer written by hand; parameters in any order."""

    @R.function
    def train(
        w: R.Tensor((4, 3), "float32"),
        x: R.Tensor((8, 4), "float32"),
        velocity: R.Tensor((4, 3), "float32"),
        rate: R.Tensor((), "float32"),
        y: R.Tensor((8, 3), "float32"),
        steps: R.Tensor((), "int32"),
        scale: R.Tensor((3,), "float32"),
    ):
        with R.dataflow():
            guess = R.multiply(R.matmul(x, w), scale)
            difference = R.subtract(guess, y)
            loss = R.mean(R.multiply(difference, difference))
            scaled = R.multiply(R.multiply(difference, scale), R.const(2.0 / 24.0, "float32"))
            gradient = R.matmul(R.permute_dims(x), scaled)
            v_new = R.add(R.multiply(velocity, R.const(0.9, "float32")), gradient)
            w_new = R.subtract(w, R.multiply(v_new, rate))
            steps_new = R.add(steps, R.const(1, "int32"))
            result = (w_new, loss, guess, v_new, steps_new)
            R.output(result)
        return result


UPDATES = {"w": "w_new", "velocity": 3, "steps": "steps_new"}


def own_step() -> tvm.IRModule:
    return xe.with_step_signature(
        Momentum, "train", batch=["x", "y"], hyper=["rate"], updates=UPDATES
    )


def momentum_state() -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        "w": random.standard_normal((4, 3)).astype("float32"),
        "velocity": np.zeros((4, 3), "float32"),
        "steps": np.array(0, "int32"),
        "scale": np.array([1.0, 0.5, 2.0], "float32"),
    }


def momentum_in_numpy(
    state: dict[str, Array], x: Array, y: Array, rate: float
) -> tuple[float, dict[str, Array]]:
    """The loss, and the state after a step."""
    difference = x @ state["w"] * state["scale"] - y
    gradient = x.T @ (2 * difference * state["scale"] / difference.size)
    velocity = 0.9 * state["velocity"] + gradient
    new = {"w": state["w"] - rate * velocity, "velocity": velocity, "steps": state["steps"] + 1}
    return float((difference**2).mean()), {**state, **new}
