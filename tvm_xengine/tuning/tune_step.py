"""Tune the kernels of a training step, those first that take most of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.store.tuned import TunedSchedule, TunedSchedules
from tvm_xengine.kernels.targets import is_gpu
from tvm_xengine.tuning.bench import Bench
from tvm_xengine.tuning.tune_kernel import tune_kernel

FEWEST_TRIALS = 16
"""For a kernel; with fewer the search has hardly begun."""


@dataclass(frozen=True)
class TunedKernel:
    """One line of the report.

    Attributes
    ----------
    calls
        How often the step calls the kernel.
    was_known
        From an earlier run, perhaps for another network.
    """

    name: str
    device: str
    calls: int
    found: TunedSchedule
    was_known: bool


def tune_step(
    step: LoweredStep,
    costs: KernelCosts,
    tuned: TunedSchedules,
    trials: int,
    *,
    seed: int = 0,
    on_kernel: Callable[[TunedKernel], None] | None = None,
    bench: Bench | None = None,
) -> list[TunedKernel]:
    """Tune generated kernels of `step` for its processors, and keep the schedules in `tuned`.

    Parameters
    ----------
    costs
        Of the kernels as they are; each gets trials in proportion to its part of the step's time.
    trials
        How many schedules are tried in all. A kernel that `tuned` knows takes none.
    on_kernel
        Told of every kernel when it is done.
    bench
        Where schedules are timed; None is this process.
    """
    calls = Counter(step.extraction.kernels[op.name] for op in step.extraction.graph.ops)
    generated = {
        key: kernel
        for key, kernel in step.kernels.items()
        if kernel.library is None and not is_gpu(kernel.target)
    }
    by_symbol = costs(list(generated.values()))
    time_us = {
        key: calls[key[0]] * by_symbol[kernel.symbol].compute_us
        for key, kernel in generated.items()
    }
    total_us = sum(time_us.values())
    left, done = trials, []
    for key in sorted(generated, key=lambda key: -time_us[key]):
        name, device = key
        func, target = step.mod[name], generated[key].target
        found = tuned.find(func, target)
        was_known = found is not None
        if found is None:
            if left < FEWEST_TRIALS:
                continue
            share = max(FEWEST_TRIALS, int(trials * time_us[key] / total_us))
            found = tune_kernel(
                *(func, target, name, tuned, min(share, left)), seed=seed, bench=bench
            )
            left -= found.trials
        done.append(TunedKernel(name, device, calls[name], found, was_known))
        if on_kernel is not None:
            on_kernel(done[-1])
    return done
