"""Hints become places of calls and repeated calls, and steps compute what they did."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from tests.vm import reference_vm
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.resolve_hints import ResolveHints
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.relax_ir.hints import HintedDevice, hint_of, read_places


@I.ir_module
class Hinted:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            first = R.matmul(x, w)
            there = R.hint_on_device(first, R.device(1, 1))
            begin = R.grad.start_checkpoint(there)
            lv1 = R.exp(begin)
            second = R.matmul(lv1, w)
            end = R.grad.end_checkpoint(second)
            loss = R.sum(end)
            w_grad = R.matmul(R.permute_dims(lv1), second)
            result = (loss, w_grad)
            R.output(result)
        return result


@I.ir_module
class Ends:
    """A hint on an input, and one whose result is returned."""

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            there = R.hint_on_device(x, R.device(2, 0))
            y = R.exp(there)
            z = R.negative(x)
            both = R.add(y, z)
            gv = R.hint_on_device(both, R.device(1, 0))
            R.output(gv)
        return gv


def resolved(mod: tvm.IRModule) -> tvm.IRModule:
    return ResolveHints("main")(mod)


def names(mod: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in single_block(mod["main"]).bindings]


def test_no_hint_is_left_and_places_are_those_of_the_makers() -> None:
    for mod in (Hinted, Ends):
        assert not any(hint_of(b.value) for b in single_block(resolved(mod)["main"]).bindings)
    assert read_places(resolved(Hinted)["main"]) == {"first": HintedDevice(1, 1)}


def test_the_readers_of_a_hinted_input_get_its_place() -> None:
    assert read_places(resolved(Ends)["main"]) == {
        "y": HintedDevice(2, 0),
        "both": HintedDevice(1, 0),
    }


def test_what_lies_between_checkpoints_is_computed_again_after_the_loss() -> None:
    found = names(resolved(Hinted))
    assert found.index("exp_hinted_recomputed") > found.index("loss")
    assert found.index("second_recomputed") > found.index("exp_hinted_recomputed")
    assert "first_recomputed" not in found


def test_a_call_with_a_place_keeps_its_name_and_is_not_fused() -> None:
    assert {"first"} <= set(names(LowerToKernels("main")(Hinted)))
    assert {"y", "both"} <= set(names(LowerToKernels("main")(Ends)))


def test_the_function_computes_the_same() -> None:
    random = np.random.default_rng(0)
    x, w = (random.random((4, 4)).astype("float32") for _ in range(2))
    mod = LowerToKernels("main")(Hinted)
    machine = reference_vm(mod)
    loss, gradient = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w))
    hidden = np.exp(x @ w)
    np.testing.assert_allclose(loss.numpy(), (hidden @ w).sum(), rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy(), hidden.T @ (hidden @ w), rtol=1e-5)
