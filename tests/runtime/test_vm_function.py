"""Programs as functions of TVM's virtual machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import ir, relax

from tests.program.laid_out import PROBLEM, everything_on, laid_out
from tests.program.test_make import program_of
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.program.step_program import KernelRun, Outside, OutsideView, StepProgram
from tvm_xengine.runtime.vm_function import VmFunction, emit_vm_function


def calls_of(emitted: VmFunction) -> list[tuple[str, list[relax.Expr]]]:
    (block,) = emitted.function.body.blocks
    return [(str(b.value.op.global_symbol), list(b.value.args)) for b in block.bindings]


def with_outside(kind: Outside) -> StepProgram:
    view = OutsideView(kind, "images", (4, 8), "float32")
    return program_of(laid_out(PROBLEM, everything_on("cpu")), fixed={"x": view})


def test_a_place_is_one_parameter_however_often_it_is_touched() -> None:
    program = program_of(laid_out(PROBLEM, everything_on("cpu")))
    emitted = emit_vm_function(program, "step")
    assert len(set(emitted.views)) == len(emitted.views) == len(emitted.function.params)
    assert emitted.views[: len(program.interface.inputs)] == tuple(
        program.interface.inputs.values()
    )
    for call, (symbol, arguments) in zip(program.calls, calls_of(emitted), strict=True):
        assert isinstance(call, KernelRun) and call.symbol == symbol
        read = [emitted.views[list(emitted.function.params).index(a)] for a in arguments]
        assert read == list(call.operands)


def test_a_kernel_of_a_library_takes_its_context_last() -> None:
    program = program_of(laid_out(PROBLEM, everything_on("cpu")))
    first = program.calls[0]
    assert isinstance(first, KernelRun)
    called = replace(program, calls=(replace(first, has_context=True), *program.calls[1:]))
    emitted = emit_vm_function(called, "step")
    assert emitted.contexts == (first.symbol,)
    assert calls_of(emitted)[0][1][-1].same_as(emitted.function.params[-1])


def test_constants_outside_the_arenas_are_part_of_the_function() -> None:
    value = np.random.default_rng(0).random((4, 8), dtype="float32")
    emitted = emit_vm_function(with_outside(Outside.CONSTANT), "step", {"images": value})
    constant = calls_of(emitted)[0][1][0]
    assert isinstance(constant, ir.expr.GenericConst)
    np.testing.assert_array_equal(constant.value.numpy(), value)


@pytest.mark.parametrize("kind", [Outside.CALLER, Outside.SETTING])
def test_what_the_virtual_machine_cannot_reach_is_refused(kind: Outside) -> None:
    with pytest.raises(UnsupportedModuleError, match=f"images is read from the {kind.value}"):
        emit_vm_function(with_outside(kind), "step")
