"""How long compiling takes: the compiler's own stages on a thousand ops, and ResNet-50's step.

The stages are not judged: their figures are recorded, and what is asserted is that the result is
right. Run with ``make bench``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm
from tvm import relax

from benchmarks.record import record
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.program.make import make_step_program
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.runtime.vm_function import emit_vm_function
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.scheduling.simulate import simulate

OPS = 1000
COLD_S, WARM_S = 180, 20


def deep_step(layers: int) -> tvm.IRModule:
    """A forward and a mirrored backward chain of matrix products, `2 * layers` ops."""
    builder = relax.BlockBuilder()
    tensor = relax.TensorType((8, 16), "float32")
    x = relax.Var("x", tensor)
    w = relax.Var("w", relax.TensorType((16, 16), "float32"))
    attrs = {
        "tvm_xengine.roles": ["batch", "parameter"],
        "tvm_xengine.num_results": 1,
        "tvm_xengine.updates": [1],
    }
    with builder.function("train_step", [x, w], attrs=attrs):
        with builder.dataflow():
            made = [x]
            for k in range(layers):
                made.append(builder.emit(relax.op.matmul(made[-1], w), f"forward_{k}"))
            back = made[-1]
            for k in reversed(range(layers)):
                back = builder.emit(relax.op.multiply(back, made[k]), f"backward_{k}")
            out = builder.emit_output(relax.Tuple([back, w]))
        builder.emit_func_output(out)
    return builder.get()


def test_a_thousand_ops_are_extracted_scheduled_and_bound_in_seconds() -> None:
    clock = [time.perf_counter()]

    def lap(name: str) -> None:
        clock.append(time.perf_counter())
        seconds = round(clock[-1] - clock[-2], 2)
        record("compile_time", {"step": f"{OPS} ops", "stage": name, "seconds": seconds})

    mod = tvm.transform.Sequential([LowerToKernels(fuse=False)])(deep_step(OPS // 2))
    lap("lower to kernels")
    extraction = extract_graph(mod)
    lap("extract")
    assert len(extraction.graph.ops) == OPS
    platform = Platform((Device("cpu", "llvm"),))
    target = resolve_target("llvm")
    names = set(extraction.kernels.values())
    kernels = {(name, "cpu"): prepare_kernel(mod[name], target, name) for name in names}
    lap("prepare kernels")
    costs = {
        name: {"cpu": OpCost(1.0, kernels[kernel, "cpu"].workspace_bytes)}
        for name, kernel in extraction.kernels.items()
    }
    problem = Problem(extraction.graph, platform, costs)
    forward = [op.name for op in extraction.graph.ops[: OPS // 2]]
    backward = [op.name for op in extraction.graph.ops[OPS // 2 :]]
    steps = [Compute(op, "cpu") for op in (*forward, *forward[-50:], *backward)]
    schedule = with_frees(problem, steps)
    simulate(problem, schedule)
    lap("derive frees, simulate")
    arenas = plan_arenas(problem, schedule)
    lap("plan arenas")
    tvm.transform.Sequential([ApplySchedule(problem, schedule)])(mod)
    lap("apply schedule")
    step = LoweredStep(mod, "train_step", extraction, platform, kernels)
    plan = SimpleNamespace(problem=problem, schedule=schedule, arenas=arenas)
    program = make_step_program(step, plan)
    lap("make the program")
    emitted = emit_vm_function(program, "train_step")
    lap("emit it for the virtual machine")
    calls = [b for block in emitted.function.body.blocks for b in block.bindings]
    assert len(calls) == len(program.calls) == OPS + 50


def test_importing_the_solvers_is_quick_and_loads_no_tvm() -> None:
    code = "import sys, tvm_xengine.solvers.solve; print('tvm' in sys.modules)"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    seconds = round(time.perf_counter() - start, 2)
    row = {"step": "new process", "stage": "import tvm_xengine.solvers.solve", "seconds": seconds}
    record("compile_time", row)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_resnet50_compiles_in_minutes_and_loads_in_seconds(tmp_path: Path) -> None:
    """Two devices, the first time with an empty store, then again in a new process."""
    command = [sys.executable, "-m", "benchmarks.training.compile_step", "resnet50", str(tmp_path)]
    for what, most_s in (("cold", COLD_S), ("warm", WARM_S)):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
        for stage in ("imports_s", "training_s", "lowering_s", "kernels_s", "total_s"):
            name = f"{stage.removesuffix('_s')}, {what} kernel store"
            seconds = round(found[stage], 2)
            record("compile_time", {"step": "resnet50", "stage": name, "seconds": seconds})
        assert found["total_s"] < most_s
