import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.passes.small_step import SmallStep, small_problem, two_cpus
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer, with_frees

ROLES = ["batch"]


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def f(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] + T.float32(1)

    @T.prim_func(private=True)
    def g(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
        for i in range(4):
            z[i] = x[i] * y[i]

    @R.function
    def train_step(x: R.Tensor((4,), "float32")):
        R.func_attr(
            {"tvm_xengine.roles": ROLES, "tvm_xengine.num_results": 1, "tvm_xengine.updates": []}
        )
        cls = Before
        with R.dataflow():
            h = R.call_tir(cls.f, (x,), out_ty=R.Tensor((4,), "float32"))
            a = R.call_tir(cls.f, (h,), out_ty=R.Tensor((4,), "float32"))
            y = R.call_tir(cls.f, (a,), out_ty=R.Tensor((4,), "float32"))
            z = R.call_tir(cls.g, (a, y), out_ty=R.Tensor((4,), "float32"))
            R.output(z)
        return z


ONE_CPU = Platform((Device("cpu", "llvm"),))


def problem_of(mod: tvm.IRModule, platform: Platform = ONE_CPU) -> Problem:
    graph = extract_graph(mod).graph
    costs = {op.name: {d.name: OpCost(1.0) for d in platform.computing} for op in graph.ops}
    return Problem(graph, platform, costs)


def calls(func: relax.Function) -> list[tuple[str, str, list[str]]]:
    """(variable, kernel or operator, arguments) of every call of the block."""
    found = []
    for binding in func.body.blocks[0].bindings:
        value = binding.value
        if isinstance(value, relax.Call):
            if value.op.name == "relax.call_tir":
                names = [field.name for field in value.args[1].fields]
                found.append((binding.var.name, value.args[0].name_hint, names))
            else:
                found.append((binding.var.name, value.op.name, [value.args[0].name]))
    return found


def on_cpu(*ops: str) -> list[Compute]:
    return [Compute(op, "cpu") for op in ops]


def test_a_recomputed_tensor_is_read_by_later_ops() -> None:
    problem = problem_of(Before)
    schedule = with_frees(problem, on_cpu("h", "a", "y", "a", "z"))
    after = ApplySchedule(problem, schedule)(Before)
    assert calls(after["train_step"]) == [
        ("h", "f", ["x"]),
        ("a", "f", ["h"]),
        ("y", "f", ["a"]),
        ("a1", "f", ["h"]),
        ("z", "g", ["a1", "y"]),
    ]


def test_the_plain_order_keeps_the_function() -> None:
    problem = problem_of(Before)
    schedule = with_frees(problem, on_cpu("h", "a", "y", "z"))
    after = ApplySchedule(problem, schedule)(Before)
    assert [call[0] for call in calls(after["train_step"])] == ["h", "a", "y", "z"]
    assert not Before.global_infos  # the input module is left alone


def test_no_pass_of_the_build_merges_a_recomputed_call() -> None:
    problem = problem_of(Before)
    schedule = with_frees(problem, on_cpu("h", "a", "y", "a", "z"))
    after = ApplySchedule(problem, schedule)(Before)
    kept = tvm.transform.Sequential(
        [
            relax.transform.CanonicalizeBindings(),
            relax.transform.DeadCodeElimination(["train_step"]),
            relax.transform.FoldConstant(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )(after)
    assert [call[1] for call in calls(kept["train_step"])] == ["f", "f", "f", "f", "g"]
    # The one pass that does merge equal calls, so that this test can fail.
    merged = relax.transform.EliminateCommonSubexpr()(after)
    assert [call[1] for call in calls(merged["train_step"])] == ["f", "f", "f", "g"]


def test_a_transfer_is_an_explicit_copy_to_the_other_device() -> None:
    problem = small_problem()
    steps = [
        *on_cpu("h", "both"),
        Transfer("both.1", "cpu", "cpu_generic"),
        *on_cpu("y"),
        Transfer("y", "cpu", "cpu_generic"),
        Compute("g", "cpu_generic"),
        Transfer("g", "cpu_generic", "cpu"),
        *on_cpu("w_new"),
    ]
    after = ApplySchedule(problem, with_frees(problem, steps))(SmallStep)
    func = after["train_step"]
    assert [call[1] for call in calls(func)] == [
        "square",
        "twice_and_next",
        "relax.to_vdevice",
        "relax.reshape",
        "add_flat",
        "relax.to_vdevice",
        "relax.reshape",
        "add_flat",
        "relax.to_vdevice",
        "descend",
    ]
    device = {
        binding.var.name: int(binding.var.ty.vdevice.vdevice_id)
        for binding in func.body.blocks[0].bindings
        if isinstance(binding.var.ty, relax.TensorType)
    }
    assert (device["y"], device["g"], device["w_new"]) == (0, 1, 0)
    targets = [str(v.target.attrs.get("mcpu")) for v in after.global_infos["vdevice"]]
    assert targets[1] == "x86-64" != targets[0]


def test_attributes_of_the_function_survive() -> None:
    problem = small_problem()
    schedule = with_frees(problem, [Compute(op.name, "cpu") for op in problem.graph.ops])
    after = ApplySchedule(problem, schedule)(SmallStep)["train_step"]
    assert list(after.attrs["tvm_xengine.results"]) == ["loss"]
    assert str(after.attrs["global_symbol"]) == "train_step"


def test_a_schedule_for_another_function_is_refused() -> None:
    problem = small_problem(two_cpus())
    schedule = with_frees(problem, [Compute(op.name, "cpu") for op in problem.graph.ops])
    with pytest.raises(InvalidScheduleError, match="extract it again"):
        ApplySchedule(problem, schedule)(Before)


def test_a_tensor_that_is_not_there_is_refused() -> None:
    problem = problem_of(Before)
    with pytest.raises(InvalidScheduleError, match="h is read on cpu"):
        ApplySchedule(problem, Schedule(tuple(on_cpu("a"))))(Before)
