"""A tiny lowered training step, written by hand, that tests schedule and run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem


@I.ir_module
class SmallStep:
    """h = tanh-like(x), a = 2h, y = a + 1, loss-like z = a * y, and w -= lr * z."""

    @T.prim_func(private=True, s_tir=True)
    def square(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("square"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * x[vi, vj]

    @T.prim_func(private=True, s_tir=True)
    def twice_and_next(
        x: T.Buffer((4, 8), "float32"),
        two: T.Buffer((4, 8), "float32"),
        plus: T.Buffer((4, 8), "float32"),
    ):
        for i, j in T.grid(4, 8):
            with T.sblock("twice"):
                vi, vj = T.axis.remap("SS", [i, j])
                two[vi, vj] = x[vi, vj] * T.float32(2)
        for i, j in T.grid(4, 8):
            with T.sblock("plus"):
                vi, vj = T.axis.remap("SS", [i, j])
                plus[vi, vj] = x[vi, vj] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def add_flat(
        x: T.Buffer((32,), "float32"), y: T.Buffer((32,), "float32"), z: T.Buffer((32,), "float32")
    ):
        for i in range(32):
            with T.sblock("add"):
                vi = T.axis.remap("S", [i])
                z[vi] = x[vi] + y[vi]

    @T.prim_func(private=True, s_tir=True)
    def descend(
        w: T.Buffer((32,), "float32"),
        g: T.Buffer((32,), "float32"),
        lr: T.Buffer((), "float32"),
        new: T.Buffer((32,), "float32"),
    ):
        T.func_attr({"tvm_xengine.inplace": [0, 0]})
        for i in range(32):
            with T.sblock("descend"):
                vi = T.axis.remap("S", [i])
                new[vi] = w[vi] - lr[()] * g[vi]

    @R.function
    def train_step(
        x: R.Tensor((4, 8), "float32"),
        lr: R.Tensor((), "float32"),
        w: R.Tensor((32,), "float32"),
    ):
        R.func_attr(
            {
                "tvm_xengine.roles": ["batch", "hyper", "parameter"],
                "tvm_xengine.num_results": 1,
                "tvm_xengine.results": ["loss"],
                "tvm_xengine.updates": [2],
            }
        )
        cls = SmallStep
        with R.dataflow():
            h = R.call_tir(cls.square, (x,), out_ty=R.Tensor((4, 8), "float32"))
            both = R.call_tir(
                cls.twice_and_next,
                (h,),
                out_ty=[R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")],
            )
            two = both[0]
            plus = both[1]
            flat_two = R.reshape(two, (32,))
            flat_plus = R.reshape(plus, (32,))
            y = R.call_tir(cls.add_flat, (flat_two, w), out_ty=R.Tensor((32,), "float32"))
            g = R.call_tir(cls.add_flat, (y, flat_plus), out_ty=R.Tensor((32,), "float32"))
            w_new = R.call_tir(cls.descend, (w, g, lr), out_ty=R.Tensor((32,), "float32"))
            out = (y, w_new)
            R.output(out)
        return out


def reference(
    x: NDArray[np.float32], lr: float, w: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(loss, new w) of the step in numpy."""
    h = x * x
    y = (2 * h).reshape(32) + w
    return y, w - np.float32(lr) * (y + (h + 1).reshape(32))


def two_cpus(budget_bytes: int = 10**6) -> Platform:
    """Two CPU devices, the second for baseline x86-64, linked both ways."""
    return Platform(
        devices=(
            Device("cpu", "llvm -mcpu=native", budget_bytes, ("tir",)),
            Device("cpu_generic", "llvm -mcpu=x86-64", budget_bytes),
        ),
        links=(Link("cpu", "cpu_generic", 1.0, 10.0), Link("cpu_generic", "cpu", 1.0, 10.0)),
    )


def small_problem(platform: Platform | None = None) -> Problem:
    """The problem of `SmallStep`, every op 10 us on every device, without workspace."""
    platform = platform or two_cpus()
    graph = extract_graph(SmallStep).graph
    costs = {op.name: {d.name: OpCost(10.0) for d in platform.computing} for op in graph.ops}
    return Problem(graph, platform, costs)
