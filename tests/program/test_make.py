"""The program of a plan makes the calls that the plan and the rewritten function say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from hypothesis import given, settings
from tvm import relax

from tests.passes.small_step import SmallStep
from tests.program.laid_out import PROBLEM, LaidOut, everything_on, laid_out, programs, small_step
from tests.strategies import cases
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import (
    ArenaView,
    KernelRun,
    Outside,
    OutsideView,
    StepProgram,
)
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer

KERNELS: dict[tuple[str, str], DeviceKernel] = {
    (name, device.name): prepare_kernel(SmallStep[name], resolve_target(device.target or ""))
    for device in PROBLEM.platform.devices
    for name in sorted(set(extract_graph(SmallStep).kernels.values()))
}


def program_of(plan: LaidOut, **options: object) -> StepProgram:
    return make_step_program(small_step(KERNELS), plan, **options)


class Rewritten:
    """The function that ApplySchedule makes, followed binding by binding."""

    def __init__(self, plan: LaidOut) -> None:
        rewrite = ApplySchedule(plan.problem, plan.schedule)
        func = tvm.transform.Sequential([rewrite])(SmallStep)["train_step"]
        (block,) = func.body.blocks
        self.params = list(func.params)
        self.bindings = list(block.bindings)
        self.devices = [device.name for device in plan.problem.platform.devices]

    def agrees_with(self, program: StepProgram) -> None:
        """Every call has the same kernel, device, operands and order."""
        inputs = program.interface.inputs
        place = {param: _address(inputs[param.name]) for param in self.params}
        places: dict[relax.Var, list[tuple[str, int]]] = {}
        calls = iter(program.calls)
        for binding in self.bindings:
            var, value = binding.var, binding.value
            if isinstance(value, relax.TupleGetItem):
                place[var] = places[value.tuple_value][value.index]
            elif isinstance(value, relax.Tuple):
                self._returns(value, place, program)
            elif value.op.name == "relax.reshape":
                place[var] = place[value.args[0]]
            elif value.op.name == "relax.to_vdevice":
                copy = next(calls)
                assert not isinstance(copy, KernelRun)
                assert place[value.args[0]] == _address(copy.src)
                assert copy.dst.device == self._device(var.ty)
                assert (copy.dst.shape, copy.dst.dtype) == static_tensor("", var.ty)
                place[var] = _address(copy.dst)
            else:
                places[var] = self._runs(value, var, place, next(calls))
                place[var] = places[var][0]
        assert next(calls, None) is None

    def _runs(self, value, var, place, call) -> list[tuple[str, int]]:
        is_tuple = isinstance(var.ty, relax.TupleType)
        types = list(value.ty_args[0].fields) if is_tuple else [var.ty]
        assert isinstance(call, KernelRun)
        assert call.device == self._device(types[0])
        assert call.symbol == KERNELS[value.args[0].name_hint, call.device].symbol
        read = list(value.args[1].fields)
        for argument, operand in zip(read, call.inputs, strict=True):
            assert place[argument] == _address(operand)
            assert (operand.shape, operand.dtype) == static_tensor("", argument.ty)
        for ty, output in zip(types, call.outputs, strict=True):
            assert (output.shape, output.dtype) == static_tensor("", ty)
        return [_address(output) for output in call.outputs]

    def _returns(self, value, place, program) -> None:
        results = list(program.interface.results.values())
        for field, result in zip(value.fields, results, strict=False):
            assert place[field] == _address(result)

    def _device(self, ty: relax.TensorType) -> str:
        return self.devices[int(ty.vdevice.vdevice_id)]


def _address(view: object) -> tuple[str, int]:
    assert isinstance(view, ArenaView)
    return view.device, view.offset_bytes


@settings(max_examples=cases(50))
@given(steps=programs())
def test_what_runs_is_what_the_rewritten_function_computes(steps: list[Step]) -> None:
    plan = laid_out(PROBLEM, steps)
    Rewritten(plan).agrees_with(program_of(plan))


def test_the_rewritten_function_tells_two_orders_apart() -> None:
    plan = laid_out(PROBLEM, everything_on("cpu"))
    again = [Compute(op, "cpu") for op in ("h", "both", "y", "h", "both", "g", "w_new")]
    with pytest.raises((AssertionError, StopIteration)):
        Rewritten(plan).agrees_with(program_of(laid_out(PROBLEM, again)))


def test_a_repeated_op_says_so_and_an_update_too() -> None:
    again = [Compute(op, "cpu") for op in ("h", "both", "y", "h", "both", "g", "w_new")]
    calls = program_of(laid_out(PROBLEM, again)).calls
    runs = [call for call in calls if isinstance(call, KernelRun)]
    assert [run.op for run in runs if run.is_repeat] == ["h", "both"]
    assert [run.op for run in runs if run.updates_state] == ["w_new"]


def test_state_is_updated_in_place_and_named_by_its_role() -> None:
    interface = program_of(laid_out(PROBLEM, everything_on("cpu"))).interface
    assert dict(interface.roles) == {"x": Role.BATCH, "lr": Role.HYPER, "w": Role.PARAMETER}
    (update,) = [
        call
        for call in program_of(laid_out(PROBLEM, everything_on("cpu"))).calls
        if isinstance(call, KernelRun) and call.updates_state
    ]
    assert update.outputs == (interface.inputs["w"],)
    assert list(interface.results) == ["loss"]


def test_what_is_fixed_is_read_where_it_is_and_never_copied() -> None:
    steps = [
        Transfer("x", "cpu", "cpu_generic"),
        Compute("h", "cpu_generic"),
        Transfer("h", "cpu_generic", "cpu"),
        *(Compute(op, "cpu") for op in ("both", "y", "g", "w_new")),
    ]
    caller = OutsideView(Outside.CALLER, "images", (4, 8), "float32")
    program = program_of(laid_out(PROBLEM, steps), fixed={"x": caller})
    first, copy, *_ = program.calls
    assert isinstance(first, KernelRun) and first.inputs == (caller,)
    assert not isinstance(copy, KernelRun) and copy.tensor == "h"
    assert program.interface.outside == {"x": caller}
    assert "x" not in program.interface.inputs


def test_an_arena_that_begins_later_moves_every_address() -> None:
    plan = laid_out(PROBLEM, everything_on("cpu"))
    here, there = program_of(plan), program_of(plan, arena_start_bytes={"cpu": 640})
    for one, other in zip(here.calls, there.calls, strict=True):
        assert isinstance(one, KernelRun) and isinstance(other, KernelRun)
        for a, b in zip(one.operands, other.operands, strict=True):
            assert isinstance(a, ArenaView) and b == replace(a, offset_bytes=a.offset_bytes + 640)
    assert there.interface.arena_bytes["cpu"] == here.interface.arena_bytes["cpu"] + 640


def test_kernels_that_need_more_workspace_than_was_planned_are_refused() -> None:
    hungry = {key: replace(kernel, workspace_bytes=256) for key, kernel in KERNELS.items()}
    with pytest.raises(InvalidScheduleError, match="from the same kernels"):
        make_step_program(small_step(hungry), laid_out(PROBLEM, everything_on("cpu")))
