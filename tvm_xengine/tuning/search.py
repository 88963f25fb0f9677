"""Schedules that MetaSchedule proposes for a kernel, one batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.targets import core_count

Judge = Callable[[Sequence[s_tir.Schedule]], Sequence[float | None]]
"""Run times of scheduled kernels in microseconds, None where one is no good."""

_BATCH = 16
"""Schedules between two trainings of MetaSchedule's cost model."""

_FAILED_S = 1e9
"""Stands for a schedule that does not run: slower than any that does."""


def search(
    func: tirx.PrimFunc, target: Target, trials: int, judge: Judge, *, seed: int = 0
) -> Iterator[tuple[s_tir.Schedule, float]]:
    """Every proposed schedule that is good, with its time.

    MetaSchedule's evolutionary search with its boosted trees chooses what is tried next. The first
    call in a process loads the tensor intrinsics of all targets, which takes most of a minute.

    Parameters
    ----------
    trials
        How many schedules are judged at most.

    Raises
    ------
    UnsupportedModuleError
        When MetaSchedule cannot read the kernel's loops.
    """
    from tvm.s_tir import meta_schedule as ms  # loads much more than the rest of the package needs

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    context = ms.TuneContext(
        mod=module,
        target=with_cores(target),
        space_generator=_space(target),
        search_strategy=ms.search_strategy.EvolutionarySearch(population_size=128),
        task_name="kernel",
        rand_state=seed + 1,
        num_threads=1,
    )
    strategy, model = context.search_strategy, ms.cost_model.XGBModel(num_warmup_samples=_BATCH)
    try:
        spaces = context.generate_design_space()
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedModuleError(f"no schedules can be proposed for it: {error}") from error
    strategy.pre_tuning(trials, _BATCH, spaces, ms.database.MemoryDatabase(), model)
    try:
        while candidates := strategy.generate_measure_candidates():
            times_us = judge([candidate.sch for candidate in candidates])
            for candidate, time_us in zip(candidates, times_us, strict=True):
                if time_us is not None:
                    yield candidate.sch, time_us
            seconds = [_FAILED_S if us is None else us * 1e-6 for us in times_us]
            results = [ms.runner.RunnerResult([s], None) for s in seconds]
            model.update(context, candidates, results)
            strategy.notify_runner_results(candidates, results)
    finally:
        strategy.post_tuning()


def with_cores(target: Target) -> Target:
    """The target with a number of cores, which MetaSchedule asks a processor for; one without has one."""
    if str(target.kind) != "llvm" or "num-cores" in target.attrs:
        return target
    return Target({**target.export(), "num-cores": 1})


def _space(target: Target) -> Any:
    """What may be done to loops; without threads for a device of one core."""
    from tvm.s_tir import meta_schedule as ms

    rules = list(ms.ScheduleRule.create("llvm"))
    if core_count(target) == 1:
        threads = ms.schedule_rule.ParallelizeVectorizeUnroll
        rules = [rule for rule in rules if not isinstance(rule, threads)]
        rules.append(
            threads(
                max_jobs_per_core=-1, max_vectorize_extent=64, unroll_max_steps=[0, 16, 64, 512]
            )
        )
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=ms.Postproc.create("llvm"),
        mutator_probs=ms.Mutator.create("llvm"),
    )
