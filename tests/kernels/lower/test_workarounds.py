"""Canaries: each fails once TVM no longer needs what `WORKAROUNDS` names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from packaging.requirements import Requirement
from tvm import ir, relax, s_tir, te, tirx
from tvm.s_tir.dlight import gpu
from tvm.script import tirx as T

from tests.commands.test_start_up import run as run_program
from tests.kernels.kernels import NATIVE, run_kernel, run_unscheduled
from tvm_xengine.kernels.lower import pipeline
from tvm_xengine.kernels.lower.workarounds import WORKAROUNDS
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.reduction import extreme_position

DELETE = "TVM no longer needs the workaround: delete it, its entry in WORKAROUNDS and this test"


def nothing() -> tvm.transform.Pass:
    """A pass that changes nothing, in the place of a workaround."""
    return tvm.transform.module_pass(lambda mod, _: mod, opt_level=0)


def test_every_workaround_has_a_canary_and_a_place() -> None:
    names = [each.name for each in WORKAROUNDS]
    assert len(set(names)) == len(names)
    canaries = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert canaries == {*names, "every_workaround_has_a_canary_and_a_place"}
    root = Path(__file__).parents[3]
    for place in (place for each in WORKAROUNDS for place in each.places):
        assert (root / place).exists() or find_spec(place) is not None, place


def test_iter_map_simplify_divides_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "flatten_buffers", tirx.transform.FlattenBuffer)
    x = te.placeholder((4, 2), "float32", name="x")
    func = te.create_prim_func([x, te.compute((12,), lambda i: x[(21 - i) // 9, 1], name="y")])
    values = np.arange(8, dtype="float32").reshape(4, 2)
    (y,) = run_kernel(func, NATIVE, values)
    assert not np.array_equal(y, values[(21 - np.arange(12)) // 9, 1]), DELETE


def test_single_conditions_of_sums_are_lost() -> None:
    x = te.placeholder((18, 64), "float32", name="x")
    k = te.reduce_axis((0, 64), name="k")
    y = te.compute((18,), lambda i: te.sum(x[i, k], k), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, y]))
    sums, terms = schedule.get_loops(schedule.get_sblock("y"))
    for loop, extent, axes in (
        (sums, 4, ("blockIdx.x", "threadIdx.y")),
        (terms, 64, ("", "threadIdx.x")),
    ):
        for part, axis in zip(schedule.split(loop, [None, extent]), axes, strict=True):
            if axis:
                schedule.bind(part, axis)
    target = resolve_target("cuda -arch=sm_80")
    passes = [tirx.transform.BindTarget(target), s_tir.transform.LowerCrossThreadReduction()]
    lowered = tvm.transform.Sequential(passes)(schedule.mod)
    conditions: list[str] = []

    def visit(realize: s_tir.SBlockRealize) -> None:
        if realize.block.name_hint == "y_write_back":
            conditions.append(str(realize.predicate))

    tvm_ffi.structural_walk(lowered["main"].body, (s_tir.SBlockRealize, visit))
    assert len(conditions) == 1
    assert "< 18" not in conditions[0], DELETE


def test_any_sum_over_two_tensors_is_scheduled_as_a_product() -> None:
    """Of 19 terms, each of which is 1 where both tensors hold zeros."""
    a, b = (
        te.placeholder((extent, 19), "float32", name=name)
        for extent, name in ((45, "a"), (70, "b"))
    )
    k = te.reduce_axis((0, 19), name="k")
    y = te.compute((45, 70), lambda i, j: te.sum(te.exp(a[i, k] - b[j, k]), k), name="y")
    target = resolve_target("cuda -arch=sm_80")
    with target:
        schedule = gpu.Matmul().apply(te.create_prim_func([a, b, y]), target, False)
    terms = [int(i.dom.extent) for i in schedule.get(schedule.get_sblock("y_update")).iter_vars]
    assert terms[-1] > 19, DELETE


def test_comparisons_and_products_are_simplified_without_nan() -> None:
    x, zero = te.placeholder((1,), "float32", name="x"), tirx.const(0.0, "float32")
    for wrong in (
        lambda i: tirx.Select(tirx.Not(x[i] < zero), zero + 1, zero),
        lambda i: tirx.Select(x[i] != x[i], zero + 1, zero),
        lambda i: x[i] * zero + 0.0,
    ):
        func = te.create_prim_func([x, te.compute((1,), wrong, name="y")])
        (y,) = run_unscheduled(func, NATIVE, np.array([np.nan], "float32"))
        assert y == 0, DELETE


def test_quotients_of_floats_by_a_known_zero_are_refused() -> None:
    x = te.placeholder((1,), "float32", name="x")
    with pytest.raises(tvm.error.InternalError, match="Divide by zero"):
        te.compute((1,), lambda i: x[i] / tirx.const(0.0, "float32"))


def test_values_of_bfloat16_that_are_bound_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "StoreShortBindings", lambda _scope: nothing())
    x = te.placeholder((5, 6), "bfloat16", name="x")
    arguments = {"axis": 1, "keepdims": False, "largest": True, "dtype": "int64"}
    func = te.create_prim_func([x, extreme_position(x.astype("float32"), **arguments)])
    values = -np.arange(30).reshape(5, 6).astype("bfloat16")
    (positions,) = run_kernel(func, NATIVE, values)
    assert positions.tolist() != [0] * 5, DELETE


COMPILES_A_CHAIN = """
    import numpy as np
    from tvm import te
    from tests.kernels.kernels import NATIVE, run_kernel
    from tests.kernels.lower.test_workarounds import nothing
    from tvm_xengine.kernels.lower import pipeline
    from tvm_xengine.kernels.store.compile_limit import ends_after

    def element(i):
        value = x[i]
        for _ in range(DEPTH):
            value = te.sigmoid(value)
        return value

    pipeline.StoreNestedLets = nothing
    x = te.placeholder((64,), "float32", name="x")
    with ends_after(3.0):
        func = te.create_prim_func([x, te.compute((64,), element, name="y")])
        run_kernel(func, NATIVE, np.zeros(64, "float32"))
"""


@pytest.mark.slow
def test_nested_lets_compile_for_ever() -> None:
    """Two functions take some 0.2 s of processor time, six more than 3 s (and 12 s)."""

    def ends_by(depth: int) -> int:
        program = textwrap.dedent(COMPILES_A_CHAIN).replace("DEPTH", str(depth))
        return subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode

    assert ends_by(2) == 0
    assert ends_by(6) == -signal.SIGPROF, DELETE


def test_a_let_of_a_variable_is_bound_twice() -> None:
    x = tirx.decl_buffer((8,), "int32", name="x")
    shared, word, i = (tirx.Var(name, "int32") for name in ("shared", "word", "i"))
    chosen = tirx.Let(word, shared, word * word - word) < 7
    value = tirx.Select(chosen, tirx.const(0, "int32"), x[i])
    bind = tirx.Bind(shared, (i * 64 + 3).astype("uint32").astype("int32"))
    body = tirx.SeqStmt([bind, tirx.BufferStore(x, value, [i])])
    func = tirx.PrimFunc([x], tirx.For(i, 0, 8, tirx.ForKind.SERIAL, body))
    mod = tvm.IRModule({"main": func.with_attr("target", tvm.target.Target({"kind": "llvm"}))})
    try:
        tirx.transform.LowerIntrin()(mod)
    except tvm.error.InternalError as error:
        assert "conflicts with previous binding" in str(error)
    else:
        pytest.fail(DELETE)


def test_assertions_take_the_condition_first() -> None:
    condition = tirx.Var("x", "int32") < 3
    kind, message = ir.StringImm("RuntimeError"), [ir.StringImm("message")]
    assert tirx.AssertStmt(condition, kind, message).condition.same_as(condition), DELETE


def test_unsigned_products_do_not_wrap_around() -> None:
    x = te.placeholder((8,), "uint32", name="x")
    factor = tirx.const(0x85EBCA6B, "uint32")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] * factor, name="y")])
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    code = tvm.compile(mod, tvm.target.Target({"kind": "llvm"})).mod.inspect_source("ll")
    assert "mul nuw" in code, DELETE


def test_fuse_tir_drops_functions_without_callers() -> None:
    square = relax.TensorType((4,), "float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", square)
    with builder.function("fused", [x], attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            made = builder.emit_te(lambda t: te.compute(t.shape, lambda i: t[i] + 1.0), x)
            made = builder.emit_output(made)
        builder.emit_func_output(made)
    fused = tvm.transform.Sequential([relax.transform.FuseTIR()])(builder.get())
    assert "fused" not in {symbol.name_hint for symbol in fused.get_global_vars()}, DELETE


def test_errors_of_a_pass_lose_their_class() -> None:
    class UnknownError(Exception):
        pass

    def fail(_mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        raise UnknownError

    failing = tvm.transform.module_pass(fail, opt_level=0)
    with pytest.raises(RuntimeError) as raised:
        tvm.transform.Sequential([failing])(tvm.IRModule({}))
    assert not isinstance(raised.value, UnknownError), DELETE


def test_tvm_accepts_an_ffi_that_it_crashes_with() -> None:
    wanted = [Requirement(line) for line in requires("apache-tvm") or ()]
    (ffi,) = [each for each in wanted if each.name == "apache-tvm-ffi"]
    assert ffi.specifier.contains("0.1.15"), DELETE


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux's scheduler")
def test_thread_pools_read_only_the_environment() -> None:
    program = """
        import os, tvm
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        cores = len(os.sched_getaffinity(0))
        threads = int(tvm.get_global_func("runtime.NumThreads")())
        print(cores, threads, len(os.sched_getaffinity(0)))
    """
    cores, threads, left = map(int, run_program(program).split())
    assert cores == 1 or threads < cores or left < cores, DELETE


def test_scripts_are_parsed_with_the_sources_of_all_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr("inspect.stack", lambda *_: asked.append(1) or [])
    T.prim_func(private=True)
    assert asked, DELETE
