"""The costs of a problem, corrected by how long a step's calls took while it ran."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from tvm_xengine.scheduling.platform import Link
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer

_LEAST_US = 1e-3
"""A nanosecond, which a clock may round to nothing; costs are positive."""


@dataclass(frozen=True)
class _Seen:
    """What was measured under one key.

    Attributes
    ----------
    measured_us, predicted_us
        Of each call.
    """

    measured_us: tuple[float, ...] = ()
    predicted_us: tuple[float, ...] = ()

    def with_call(self, measured_us: float, predicted_us: float) -> _Seen:
        return _Seen((*self.measured_us, measured_us), (*self.predicted_us, predicted_us))

    @property
    def ratio(self) -> float:
        """By what the predictions are multiplied to give the sum that was measured."""
        return max(_LEAST_US, sum(self.measured_us)) / sum(self.predicted_us)


def as_measured(
    problem: Problem,
    schedule: Schedule,
    times_us: Mapping[int, float],
    kernel_of: Callable[[str, str, str], Hashable],
) -> Problem:
    """The problem with the times that calls of its schedule took in the step.

    An op that ran on a device costs the mean of its runs there; one whose kernel ran there for
    another op costs the mean of that kernel. What did not run is as much slower or faster than
    predicted as what ran on the same device, or where nothing did, on all. Times of copies are
    multiplied by one factor per link.

    Parameters
    ----------
    times_us
        By position in the schedule; frees take none.
    kernel_of
        Identifies the kernel of an op on a device, and of its variant.
    """
    seen: dict[Hashable, _Seen] = {}

    def note(measured_us: float, predicted_us: float, *keys: Hashable) -> None:
        for key in keys:
            seen[key] = seen.get(key, _Seen()).with_call(measured_us, predicted_us)

    for position, time_us in times_us.items():
        match schedule.steps[position]:
            case Compute(op, device, variant):
                predicted_us = problem.run_cost(op, device, variant).compute_us
                kernel = ("kernel", kernel_of(op, device, variant), device)
                note(time_us, predicted_us, ("op", op, device, variant), kernel, device, None)
            case Transfer(tensor, src, dst):
                link = problem.platform.link_between[src, dst]
                size_bytes = problem.graph.tensor[tensor].size_bytes
                note(time_us, max(_LEAST_US, link.transfer_us(size_bytes)), (src, dst))

    def cost(op: str, device: str, variant: str, given: OpCost) -> OpCost:
        power_w = problem.platform.device(device).power_w
        kernel = ("kernel", kernel_of(op, device, variant), device)
        for key in (("op", op, device, variant), kernel):
            if key in seen:
                measured_us = max(_LEAST_US, fmean(seen[key].measured_us))
                return _lasting(given, measured_us, None, power_w, CostSource.MEASURED)
        ratio = (seen.get(device) or seen.get(None) or _Seen((1.0,), (1.0,))).ratio
        interval_us = (
            None if given.interval_us is None else (ratio * given.lo_us, ratio * given.hi_us)
        )
        return _lasting(given, ratio * given.compute_us, interval_us, power_w, given.source)

    def each(op: str, device: str, given: OpCost) -> OpCost:
        variants = {name: cost(op, device, name, one) for name, one in given.variants.items()}
        return replace(cost(op, device, "", given), variants=variants)

    costs = {
        op: {device: each(op, device, given) for device, given in there.items()}
        for op, there in problem.costs.items()
    }
    links = tuple(
        _slower(link, seen[link.src, link.dst].ratio) if (link.src, link.dst) in seen else link
        for link in problem.platform.links
    )
    return replace(problem, costs=costs, platform=replace(problem.platform, links=links))


def _lasting(
    cost: OpCost,
    compute_us: float,
    interval_us: tuple[float, float] | None,
    power_w: float,
    source: CostSource,
) -> OpCost:
    """The cost of an op that takes another time, during which its device draws power."""
    energy_uj = cost.energy_uj + power_w * (compute_us - cost.compute_us)
    return replace(
        cost,
        compute_us=compute_us,
        interval_us=interval_us,
        energy_uj=max(0.0, energy_uj),
        source=source,
    )


def _slower(link: Link, ratio: float) -> Link:
    assert link.latency_us is not None and link.bandwidth_gb_s is not None
    return replace(
        link, latency_us=ratio * link.latency_us, bandwidth_gb_s=link.bandwidth_gb_s / ratio
    )
