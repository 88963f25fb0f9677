"""New state takes the bytes of the old, and steps compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.vm import reference_vm
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.write_over_state import WriteOverState
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.scheduling.graph import OpGraph, Role


def lowered(mod: tvm.IRModule, updates: tuple[int, ...]) -> tvm.IRModule:
    func = mod["train_step"]
    mod = mod.clone()
    roles = (Role.PARAMETER,) * len(func.params)
    mod["train_step"] = StepSignature(roles, 1, ("loss",), updates).write(func)
    return tvm.transform.Sequential([LowerToKernels(), WriteOverState()])(mod)


def graph_of(mod: tvm.IRModule, *updates: int) -> OpGraph:
    return extract_graph(lowered(mod, updates)).graph


@I.ir_module
class Descent:
    @R.function
    def train_step(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            loss = R.sum(y)
            w_new = R.subtract(w, R.multiply(y, R.const(0.5, "float32")))
            result = (loss, w_new)
            R.output(result)
        return result


@I.ir_module
class Product:
    """The new state reads the old one in another order."""

    @R.function
    def train_step(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            w_new = R.matmul(w, x)
            loss = R.sum(w_new)
            result = (loss, w_new)
            R.output(result)
        return result


@I.ir_module
class Swap:
    @R.function
    def train_step(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
        with R.dataflow():
            loss = R.sum(a)
            result = (loss, b, a)
            R.output(result)
        return result


@I.ir_module
class Crossed:
    """Each new state reads both old ones, so only one of them can be written at once."""

    @R.function
    def train_step(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
        with R.dataflow():
            loss = R.sum(a)
            a_new = R.add(a, b)
            b_new = R.subtract(b, a)
            result = (loss, a_new, b_new)
            R.output(result)
        return result


@I.ir_module
class Distance:
    """The loss compares new and old state."""

    @R.function
    def train_step(w: R.Tensor((4,), "float32"), x: R.Tensor((4,), "float32")):
        with R.dataflow():
            w_new = R.exp(R.add(w, x))
            loss = R.sum(R.subtract(w_new, w))
            result = (loss, w_new)
            R.output(result)
        return result


def test_a_kernel_that_may_writes_over_the_state_itself() -> None:
    graph = graph_of(Descent, 1)
    (update,) = graph.update_of.items()
    assert update[1] == "w"
    assert not update[0].endswith("replaced")


@pytest.mark.parametrize(
    ("mod", "updates", "replacing"),
    [(Product, (1,), 1), (Swap, (0, 1), 2), (Crossed, (0, 1), 1), (Distance, (0,), 1)],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_other_state_is_replaced_once_it_has_been_read(
    mod: tvm.IRModule, updates: tuple[int, ...], replacing: int
) -> None:
    graph = graph_of(mod, *updates)
    assert len(graph.update_of) == len(updates)
    assert sum("replaced" in op.name for op in graph.ops) == replacing


@pytest.mark.parametrize("mod", [Descent, Product, Swap, Crossed, Distance])
def test_the_function_computes_the_same(mod: tvm.IRModule) -> None:
    func = mod["train_step"]
    random = np.random.default_rng(0)
    inputs = [
        tvm.runtime.tensor(random.random([int(n) for n in param.ty.shape]).astype("float32"))
        for param in func.params
    ]
    updates = {1: (1,), 2: (0, 1)}[len(func.ret_ty.fields) - 1] if mod is not Distance else (0,)
    found = reference_vm(lowered(mod, updates))
    expected = reference_vm(mod)
    for one, other in zip(
        found["train_step"](*inputs), expected["train_step"](*inputs), strict=True
    ):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


@I.ir_module
class Chain:
    """The kernel that may write over `w` makes a value between, and then the new state."""

    @T.prim_func(s_tir=True)
    def minus(
        a: T.Buffer((4, 4), "float32"),
        b: T.Buffer((4, 4), "float32"),
        c: T.Buffer((4, 4), "float32"),
    ):
        T.func_attr({"tvm_xengine.inplace": [0, 0]})
        for i, j in T.grid(4, 4):
            with T.sblock("minus"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, vj] - b[vi, vj]

    @R.function
    def train_step(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        cls = Chain
        with R.dataflow():
            between = R.call_tir(cls.minus, (w, x), R.Tensor((4, 4), "float32"))
            w_new = R.call_tir(cls.minus, (between, x), R.Tensor((4, 4), "float32"))
            loss = R.sum(w_new)
            result = (loss, w_new)
            R.output(result)
        return result


def test_a_kernel_writes_over_nothing_but_the_state_it_replaces() -> None:
    mod = Chain.clone()
    roles = (Role.PARAMETER,) * 2
    mod["train_step"] = StepSignature(roles, 1, ("loss",), (1,)).write(mod["train_step"])
    with pytest.raises(UnsupportedModuleError, match="writes over an input"):
        extract_graph(LowerToKernels()(mod))
    graph = graph_of(Chain, 1)
    assert graph.updated_by["w"][0].startswith("w_replaced")
    assert [op.updates for op in graph.ops].count(()) == len(graph.ops) - 1
    x, w = np.ones((4, 4), "float32"), np.full((4, 4), 5.0, "float32")
    made = reference_vm(lowered(Chain, (1,)))["train_step"](
        tvm.runtime.tensor(x), tvm.runtime.tensor(w)
    )
    np.testing.assert_array_equal(made[1].numpy(), np.full((4, 4), 3.0))
