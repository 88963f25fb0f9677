"""Schedules of the small step, with the addresses of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.passes.small_step import SmallStep, small_problem, two_cpus
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Step, Transfer, with_frees

PROBLEM = small_problem(two_cpus())


@dataclass(frozen=True)
class LaidOut:
    """A schedule and the addresses of its tensors."""

    problem: Problem
    schedule: Schedule
    arenas: ArenaPlan


def laid_out(problem: Problem, steps: Sequence[Step]) -> LaidOut:
    schedule = with_frees(problem, steps)
    return LaidOut(problem, schedule, plan_arenas(problem, schedule))


def small_step(kernels: Mapping[tuple[str, str], DeviceKernel]) -> LoweredStep:
    extraction = extract_graph(SmallStep)
    return LoweredStep(SmallStep, "train_step", extraction, PROBLEM.platform, kernels)


def everything_on(device: str) -> list[Step]:
    return [Compute(op.name, device) for op in PROBLEM.graph.ops]


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Any devices, copies on demand, and recomputation of what was computed before."""
    steps: list[Step] = []
    there = {(name, device) for name, device in PROBLEM.home.items()}
    graph = PROBLEM.graph

    def bring(name: str, device: str) -> None:
        if (name, device) not in there:
            source = "cpu" if device == "cpu_generic" else "cpu_generic"
            if (name, source) not in there:
                compute(graph.producer[name], source)
            steps.append(Transfer(name, source, device))
            there.add((name, device))

    def compute(op: str, device: str) -> None:
        for name in graph.reads[op]:
            bring(name, device)
        steps.append(Compute(op, device))
        there.update((name, device) for name in graph.op[op].outputs)
        for _, state in graph.op[op].updates:
            there.discard((state, device))

    for op in graph.ops:
        if op.updates:
            compute(op.name, "cpu")
            continue
        compute(op.name, draw(st.sampled_from(["cpu", "cpu_generic"])))
        if draw(st.integers(0, 2)) == 0:
            again = draw(
                st.sampled_from([o.name for o in graph.ops[: graph.op_index[op.name] + 1]])
            )
            where = draw(st.sampled_from(["cpu", "cpu_generic"]))
            for name in graph.op[again].outputs:
                there.discard((name, where))
            compute(again, where)
    return steps
