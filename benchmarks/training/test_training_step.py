"""How long does a training step take, against PyTorch in the same run?

Forward, loss, backward and the optimizer's update, on the threads of ``TVM_NUM_THREADS`` and
``OMP_NUM_THREADS`` (set both; one by default). The steps run in turns, each twice, of which the second
is timed; what counts is the fastest, by the wall clock with several threads, for which other
processes must leave them the cores (``chrt -r 1``), and by CPU time with one. Run with ``-s`` to see
the rows; `-k` chooses.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._inductor.exc import InductorError  # noqa: E402

from benchmarks.record import record  # noqa: E402
from benchmarks.training.step_networks import CASES, Case, module_of  # noqa: E402
from benchmarks.training.torch_memory import (  # noqa: E402
    RATE,
    Step,
    TorchStep,
    checkpointed_within,
    compiled_within,
)
from tvm_xengine.compiler.build import build_step  # noqa: E402
from tvm_xengine.compiler.costing.costs import KernelCosts, measured_costs  # noqa: E402
from tvm_xengine.compiler.kernel_choice import with_fastest_kernels  # noqa: E402
from tvm_xengine.compiler.lower import LoweredStep, lower_step  # noqa: E402
from tvm_xengine.compiler.plan import plan_keep_all  # noqa: E402
from tvm_xengine.compiler.problem import make_problem  # noqa: E402
from tvm_xengine.cost_models.measure.measurements import (  # noqa: E402
    MeasurementCache,
    default_cache_path,
)
from tvm_xengine.cost_models.measure.timing import Effort  # noqa: E402
from tvm_xengine.errors import NoScheduleError  # noqa: E402
from tvm_xengine.frontends.torch.read import from_torch_export  # noqa: E402
from tvm_xengine.kernels.store.kernel_store import KernelStore  # noqa: E402
from tvm_xengine.planning.keep_all import budgets_for_ratio  # noqa: E402
from tvm_xengine.planning.plan import Plan  # noqa: E402
from tvm_xengine.planning.planner import PlanOptions, plan_schedule  # noqa: E402
from tvm_xengine.scheduling.graph import Role  # noqa: E402
from tvm_xengine.scheduling.platform import Device, Platform  # noqa: E402
from tvm_xengine.scheduling.problem import Problem  # noqa: E402
from tvm_xengine.solvers.result import Limits  # noqa: E402
from tvm_xengine.solvers.working_set import working_sets  # noqa: E402
from tvm_xengine.training.build import build_training_step  # noqa: E402
from tvm_xengine.training.step import TrainingStep  # noqa: E402

ROUNDS = 5
THREADS = int(os.environ.get("TVM_NUM_THREADS", "1"))
MOST_TIMES_SLOWER = 1.2
MOST_TIMES_SLOWER_GENERATED = 4.0
HALF = 0.5
SOURCES = {"auto": ("auto",), "tir": ("tir",)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_step_keeps_up_with_pytorch(case: Case) -> None:
    eager = torch_step(case)
    steps: dict[str, Step] = {"eager": eager}
    if os.environ.get("WITH_TORCH_COMPILE"):
        steps["torch.compile"] = TorchStep(torch.compile(eager.module), eager.inputs, eager.labels)
    arenas: dict[str, int] = {}
    training = our_training(case, eager)
    for name, sources in SOURCES.items():
        lowered = with_fastest_kernels(lower_step(training.mod, one_processor(sources)), costs())
        problem = problem_of(lowered)
        plans = {name: plan_keep_all(problem, "cpu")}
        if name == "auto" and (half := plan_at(problem, HALF)) is not None:
            plans[f"{name}, half memory"] = half
        for label, plan in plans.items():
            steps[label] = our_step(lowered, plan, training, eager)
            arenas[label] = plan.arenas.arena_bytes["cpu"]
    times_ms = time_in_turns_ms(steps)
    record_rows(case, "keep-all", times_ms, arenas)
    assert times_ms["auto"] <= MOST_TIMES_SLOWER * times_ms["eager"]
    assert times_ms["tir"] <= MOST_TIMES_SLOWER_GENERATED * times_ms["eager"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_half_of_pytorchs_memory(case: Case) -> None:
    """At half of what PyTorch takes, our plan is faster than PyTorch that recomputes.

    A peer that does not come down to half takes what it can reach; no peer may be faster than
    ours, or reach less than ours does.
    """
    eager = torch_step(case)
    peaks = {"eager": eager.peak_bytes()}
    half_bytes = peaks["eager"] // 2
    training = our_training(case, eager)
    lowered = with_fastest_kernels(lower_step(training.mod, one_processor(("auto",))), costs())
    plan = plan_within(problem_of(lowered), half_bytes)
    steps: dict[str, Step] = {"eager": eager}
    steps["ours"] = our_step(lowered, plan, training, eager)
    peaks["ours"] = plan.arenas.arena_bytes["cpu"]
    chosen, peak_bytes = checkpointed_within(eager, case.blocks(eager.module), half_bytes)
    label = f"checkpoint, {len(chosen.blocks)} of {len(case.blocks(eager.module))}"
    steps[label], peaks[label] = chosen, peak_bytes
    try:
        made, budget, peak_bytes = compiled_within(
            eager.module, eager.inputs, eager.labels, half_bytes
        )
        label = f"torch.compile, {budget:g}"
        steps[label], peaks[label] = made, peak_bytes
    except InductorError as error:
        print(f"\n{case.name:14} torch.compile does not work here: {str(error).splitlines()[0]}")
    times_ms = time_in_turns_ms(steps)
    record_rows(case, f"half of eager, {half_bytes / 2**20:.1f} MiB", times_ms, peaks)
    for label in times_ms.keys() - {"eager", "ours"}:
        assert times_ms["ours"] < times_ms[label]
        assert peaks["ours"] <= max(half_bytes, peaks[label])


def torch_step(case: Case) -> TorchStep:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    module = module_of(case)
    inputs = case.inputs
    with torch.no_grad():
        logits = module(inputs)
    labels = torch.randint(0, logits.shape[1], (logits.shape[0], *logits.shape[2:]))
    return TorchStep(module, inputs, labels)


def our_training(case: Case, step: TorchStep) -> TrainingStep:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(step.module, (step.inputs,))
        return build_training_step(from_torch_export(exported, name=case.name))


def one_processor(sources: tuple[str, ...]) -> Platform:
    return Platform((Device("cpu", f"llvm -mcpu=native -num-cores={THREADS}", kernels=sources),))


def our_step(lowered: LoweredStep, plan: Plan, training: TrainingStep, like: TorchStep) -> Step:
    """Like PyTorch's step, it reads the batch anew and returns the loss."""
    executable = build_step(lowered, plan, store=store())
    executable.write(training.initial_state)
    (reads,) = [name for name in executable.names(Role.BATCH) if name != "labels"]
    views = executable.interface.inputs
    given = {
        reads: like.inputs.numpy(),
        "labels": like.labels.numpy().reshape(views["labels"].shape),
        "lr": np.asarray(RATE, dtype=np.float32),
    }
    return lambda: executable.step(given)


def record_rows(
    case: Case, memory: str, times_ms: Mapping[str, float], memory_bytes: Mapping[str, int]
) -> None:
    for label, time_ms in times_ms.items():
        peak_mib = round(memory_bytes[label] / 2**20, 1) if label in memory_bytes else None
        record(
            "training_steps",
            {
                "network": case.name,
                "memory": memory,
                "step": label,
                "threads": THREADS,
                "ms": round(time_ms, 1),
                "ratio": round(time_ms / times_ms["eager"], 2),
                "peak_mib": peak_mib,
            },
        )


def store() -> KernelStore:
    return KernelStore(default_cache_path().parent / "kernels")


def problem_of(lowered: LoweredStep) -> Problem:
    return make_problem(lowered, costs())


def costs() -> KernelCosts:
    cache = MeasurementCache(default_cache_path())
    return measured_costs(cache, Effort(rounds=1), store=store())


def plan_at(problem: Problem, ratio: float) -> Plan | None:
    """The plan, None where a single op needs more memory than that."""
    limited = problem.with_budgets(budgets_for_ratio(problem, ratio))
    limits = Limits(time_limit_s=60.0, gap_ratio=0.01)
    try:
        return plan_schedule(limited, PlanOptions(limits=limits))
    except NoScheduleError:
        return None


def plan_within(problem: Problem, budget_bytes: int) -> Plan:
    """The plan for a budget, or for the smallest above it that a plan was found for."""
    least = working_sets(problem).least_bytes()["cpu"]
    budget = max(budget_bytes, least)
    limits = Limits(time_limit_s=60.0, gap_ratio=0.01)
    while True:
        try:
            return plan_schedule(problem.with_budgets({"cpu": budget}), PlanOptions(limits=limits))
        except NoScheduleError:
            budget = int(1.02 * budget)


def time_in_turns_ms(steps: Mapping[str, Step]) -> dict[str, float]:
    """The fastest of some rounds of each step, after one that is not timed.

    Behind another's step, threads still sleep or spin as that one wants them to.
    """
    clock = time.process_time_ns if THREADS == 1 else time.perf_counter_ns
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            step()
            started_ns = clock()
            step()
            best[name] = min(best[name], (clock() - started_ns) / 1e6)
    return best
