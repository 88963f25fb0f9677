"""The choice between kernels of several sources by their costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tvm_xengine.compiler.costing.costs import Costs, KernelCosts
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.cost_models.prediction.abstain import is_unknown
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import AUTO
from tvm_xengine.kernels.store.tuned import TunedSchedules, prepare_tuned

KernelKey = tuple[str, str]
"""Name of the PrimFunc, name of the device."""

_CLEAR_RATIO = 0.8
"""Half of the predictions for families of networks that a model has not seen are off by a tenth or more
(docs/results/cost_models.md): two kernels that differ by twice that are told apart."""
_SHARE_COMPARED = 0.95
"""Of the time of a library's kernels; to make the generated ones of the many small ones takes longer."""


def with_fastest_kernels(
    step: LoweredStep, costs: KernelCosts, tuned: TunedSchedules | None = None
) -> LoweredStep:
    """The step with the faster kernel on each device that leaves the choice (``auto``).

    A device that lists its sources keeps the first one that has the kernel.

    Parameters
    ----------
    costs
        Of library and generated kernels; they must be comparable.
    tuned
        Schedules for generated kernels.
    """
    generated = generated_kernels(step, step.kernels, tuned)
    return with_faster_of(step, generated, costs(compared_kernels(step, generated)))


def with_clearly_faster_kernels(
    step: LoweredStep, costs: KernelCosts, tuned: TunedSchedules | None = None
) -> LoweredStep:
    """The same by predictions: only where the difference is clear, and where the time is."""
    generated = heavy_generated_kernels(step, costs, tuned)
    return with_faster_of(step, generated, costs(compared_kernels(step, generated)))


def with_faster_of(
    step: LoweredStep, generated: Mapping[KernelKey, DeviceKernel], costs: Costs
) -> LoweredStep:
    """The step with the generated kernels that are faster than its own, clearly so by predictions.

    Parameters
    ----------
    costs
        Of both, by symbol. What a model has no ground for is no reason for a choice.
    """

    def is_faster(kernel: DeviceKernel, library: DeviceKernel) -> bool:
        ours, theirs = costs[kernel.symbol], costs[library.symbol]
        is_guess = is_unknown(ours) or is_unknown(theirs)
        is_predicted = ours.source.is_predicted or theirs.source.is_predicted
        ratio = _CLEAR_RATIO if is_predicted else 1.0
        return not is_guess and ours.compute_us < ratio * theirs.compute_us

    faster = {key: one for key, one in generated.items() if is_faster(one, step.kernels[key])}
    return replace(step, kernels={**step.kernels, **faster})


def heavy_generated_kernels(
    step: LoweredStep, costs: KernelCosts, tuned: TunedSchedules | None
) -> Mapping[KernelKey, DeviceKernel]:
    """Generated kernels in place of those of libraries that are most of the time."""
    return generated_kernels(step, step.kernels, tuned, _most_of_the_time(step, costs))


def compared_kernels(
    step: LoweredStep, generated: Mapping[KernelKey, DeviceKernel]
) -> list[DeviceKernel]:
    """The generated kernels, and those of the step that they would replace."""
    return [kernel for key, made in generated.items() for kernel in (step.kernels[key], made)]


def _most_of_the_time(step: LoweredStep, costs: KernelCosts) -> Collection[KernelKey]:
    """The fewest kernels of libraries that are most of the time of these on their device."""
    ops, chosen = Counter(step.extraction.kernels.values()), set[KernelKey]()
    keys = kernels_with_choice(step)
    by_symbol = costs([step.kernels[key] for key in keys])
    for device in step.platform.computing:
        times_us = {
            key: ops[key[0]] * by_symbol[step.kernels[key].symbol].compute_us
            for key in keys
            if key[1] == device.name
        }
        left_us = _SHARE_COMPARED * sum(times_us.values())
        for key in sorted(times_us, key=lambda key: -times_us[key]):
            if left_us <= 0:
                break
            chosen.add(key)
            left_us -= times_us[key]
    return chosen


def generated_kernels(
    step: LoweredStep,
    offered: Mapping[KernelKey, DeviceKernel],
    tuned: TunedSchedules | None,
    only: Collection[KernelKey] | None = None,
) -> Mapping[KernelKey, DeviceKernel]:
    """Generated kernels in place of those of libraries, on devices that leave the choice.

    Parameters
    ----------
    offered
        Kernels of libraries where there are any.
    only
        Leaves out all others.
    """
    return {
        key: prepare_tuned(step.mod[key[0]], offered[key].target, key[0], tuned)
        for key in kernels_with_choice(step, offered)
        if only is None or key in only
    }


def kernels_with_choice(
    step: LoweredStep, offered: Mapping[KernelKey, DeviceKernel] | None = None
) -> Sequence[KernelKey]:
    """The kernels of libraries, of a step or offered to it, on devices that leave the choice."""
    return [
        key
        for key, kernel in (step.kernels if offered is None else offered).items()
        if kernel.library is not None and AUTO in step.platform.device(key[1]).kernels
    ]
