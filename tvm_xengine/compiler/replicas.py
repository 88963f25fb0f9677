"""Plan a step whose batch is divided over devices: data parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.slices import costed_in_shares
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.compiler.plan_kernels import PlannedStep, plan_kernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import (
    InvalidInputError,
    InvalidPlatformError,
    NoScheduleError,
    UnsupportedModelError,
)
from tvm_xengine.passes.slices.batch import batch_extent
from tvm_xengine.passes.slices.slice_kernels import SUM_OF_SHARES
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.clock import LEAST_SOLVE_S
from tvm_xengine.planning.messages import time_limit_message
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.planning.shares.divide import Trial, best_division, proportional_shares
from tvm_xengine.planning.shares.first_plan import first_plan
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.replicas.buckets import buckets_of
from tvm_xengine.scheduling.schedule import Transfer
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes
from tvm_xengine.solvers.first_use import compile_plan_for

_MOST_SLICES = 8
"""A share that does not fit runs in up to so many slices: with more, kernels work on too little."""
_MOST_BUCKETINGS = 5
"""Sizes of buckets that are tried, each twice the last: in the last, latency is 6 % of a message's time."""
_CHOOSING_SHARE = 0.5
"""Share of the time limit after which no more shares and buckets are compared; the search has the rest."""


@dataclass(frozen=True)
class Replicas:
    """Over which devices the batch is divided.

    Attributes
    ----------
    count
        Number of devices; None takes all that compute, unless one alone is as fast.
    samples
        The share of each device, by name; empty lets planning choose.
    """

    count: int | None = None
    samples: Mapping[str, int] = field(default_factory=dict)


ReplicasLike = int | str | Mapping[str, int] | None
"""A number of devices, ``"auto"``, or the share of each device in samples; None does not divide."""


def replicas_of(given: ReplicasLike) -> Replicas | None:
    """What an argument says about replicas.

    Raises
    ------
    InvalidInputError
        If it is another text, or a number below 2.
    """
    match given:
        case None:
            return None
        case "auto":
            return Replicas()
        case Mapping():
            if len(given) < 2 or any(count < 1 for count in given.values()):
                raise InvalidInputError(
                    f"expected a share of at least one sample for each of two or more devices in"
                    f" replicas, got {dict(given)}"
                )
            return Replicas(len(given), dict(given))
        case int() if given >= 2:
            return Replicas(given)
    raise InvalidInputError(
        "expected a number of devices from 2, 'auto' or the samples of each device for replicas, got"
        f" {given!r}"
    )


@dataclass
class _Choosing:
    """The time that plans take from which shares and buckets are chosen; lowering does not count."""

    most_s: float
    planned_s: float = 0.0
    is_short: bool = False

    def has_time(self) -> bool:
        """Whether one more may be planned."""
        self.is_short = self.planned_s >= self.most_s
        return not self.is_short


@dataclass(frozen=True)
class _Divided:
    """The step in shares, with a first plan."""

    costed: CostedStep
    plan: Plan

    def value(self, options: PlanOptions) -> float:
        """Of the plan; less is better."""
        return options.objective.of(self.plan.simulation)


def plan_replicas(
    costed: CostedStep,
    wanted: Replicas,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> PlannedStep:
    """Plan a costed step with its batch in shares, one for each replica.

    The shares are chosen first, by plans that keep each share on one device (:func:`best_division`). Then
    the step in these shares is planned like any other one: its ops may run on any device, and the bound
    is for all of its schedules. All of it keeps the time limit, but for lowering and measuring kernels.

    Raises
    ------
    InvalidPlatformError
        If there are fewer devices than replicas, or no links between them.
    UnsupportedModelError
        If no call of the step can be divided, or the shares given are not of its batch.
    NoScheduleError
        If no schedule fits the budgets.
    """
    lowered = costed.offered
    batch = batch_extent(lowered.mod[lowered.func_name])
    devices = _devices(costed.problem, wanted)
    if len(devices) == 1:
        return plan_costed(costed, options, stores, reporter)
    _check_divides(wanted, devices, batch)
    compile_plan_for(costed.problem, options.solver, options.objective, reporter.status)
    choosing = _Choosing(_CHOOSING_SHARE * options.limits.time_limit_s)

    def attempt(samples: tuple[int, ...]) -> Trial[_Divided] | None:
        shown = ", ".join(f"{d} {n}" for d, n in zip(devices, samples, strict=True))
        reporter.status(f"dividing the batch: {shown}")
        divided = _divided(costed, devices, samples, options, stores, reporter, choosing)
        reporter.status("")
        if divided is None:
            return None
        simulation = divided.plan.simulation
        busy = tuple(simulation.busy_us[d] for d in devices)
        return Trial(samples, divided.value(options), busy, divided)

    if wanted.samples:
        found = attempt(tuple(wanted.samples[d] for d in devices))
    else:
        speeds = [1 / _whole_us(costed.problem, d) for d in devices]
        found = best_division(proportional_shares(batch, speeds), attempt, choosing.has_time)
    if wanted.count is None and _is_better_whole(costed, options, found):
        planned = plan_costed(costed, _in_rest(options, choosing), stores, reporter)
        return _saying(planned, "replicas would not be faster, so the batch is not divided")
    if found is None:
        raise NoScheduleError(
            f"no schedule was found with the batch divided over {', '.join(devices)}, in up to"
            f" {_MOST_SLICES} slices each: give them more memory, or fewer samples in all"
        )
    divided = _in_buckets(costed, found.plan, devices, options, stores, reporter, choosing)
    rest = _in_rest(options, choosing)
    planned = plan_kernels(divided.costed, rest, stores, reporter, divided.plan.schedule)
    shares = ", ".join(f"{d} {n}" for d, n in zip(devices, found.samples, strict=True))
    return _saying(
        planned,
        f"the batch is divided in shares ({shares} samples), and the bound is for these",
        *(["there was no time to compare all shares and buckets"] if choosing.is_short else []),
        _copies_in_words(planned),
    )


def _check_divides(wanted: Replicas, devices: Sequence[str], batch: int) -> None:
    """Refuse shares that are not of this batch, and more devices than samples."""
    if wanted.samples and sum(wanted.samples.values()) != batch:
        raise UnsupportedModelError(
            f"the shares of {', '.join(wanted.samples)} are {sum(wanted.samples.values())} samples, and"
            f" the batch has {batch}"
        )
    if len(devices) > batch:
        raise InvalidPlatformError(
            f"a batch of {batch} samples cannot be divided over {len(devices)} devices"
        )


def _in_rest(options: PlanOptions, choosing: _Choosing) -> PlanOptions:
    """The options of a plan in the time that is left."""
    left_s = options.limits.time_limit_s - choosing.planned_s
    return options.within(max(LEAST_SOLVE_S, left_s))


def _is_better_whole(
    costed: CostedStep, options: PlanOptions, found: Trial[_Divided] | None
) -> bool:
    """Whether a plan of the whole batch is as good as one in shares."""
    if found is None:
        return True
    whole = any_plan(costed.problem, options.objective, clock=options.limits.clock)
    return whole is not None and options.objective.of(whole.simulation) <= found.value


def _devices(problem: Problem, wanted: Replicas) -> tuple[str, ...]:
    """The devices of the replicas, in the order of the platform."""
    platform = problem.platform
    able = [d.name for d in platform.computing if math.isfinite(_whole_us(problem, d.name))]
    if wanted.samples:
        if unknown := [name for name in wanted.samples if name not in able]:
            raise InvalidPlatformError(
                f"replicas name {', '.join(unknown)}; devices that can run the whole step are"
                f" {', '.join(able)}"
            )
        chosen = set(wanted.samples)
    else:
        count = len(able) if wanted.count is None else wanted.count
        if count > len(able):
            raise InvalidPlatformError(
                f"{count} replicas need as many devices that can run the whole step; the platform has"
                f" {len(able)}: {', '.join(able)}"
            )
        chosen = set(sorted(able, key=lambda d: _whole_us(problem, d))[:count])
    devices = tuple(name for name in platform.index if name in chosen)
    _check_links(platform, devices)
    return devices


def _check_links(platform: Platform, devices: Sequence[str]) -> None:
    for src in devices:
        for dst in devices:
            if src != dst and (src, dst) not in platform.link_between:
                raise InvalidPlatformError(
                    f"replicas exchange gradients, but there is no link from {src} to {dst}"
                )


def _whole_us(problem: Problem, device: str) -> float:
    """Time of the whole step on a device; infinite where that cannot run it."""
    costs = [there.get(device) for there in problem.costs.values()]
    return sum(math.inf if cost is None else cost.compute_us for cost in costs)


def _divided(
    costed: CostedStep,
    devices: Sequence[str],
    samples: Sequence[int],
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    choosing: _Choosing,
) -> _Divided | None:
    """The step in shares with a first plan; where a share does not fit, it runs in more slices."""
    slices = [1] * len(devices)
    while True:
        cut = BatchCut.in_shares(samples, slices)
        made, found = _in_cut(costed, cut, devices, options, stores, reporter, choosing)
        if found is not None:
            return found
        over = _over_budget(made.problem, made.lowered.share_of, devices, options)
        more = [
            2 * n if d in over and 2 * n <= min(_MOST_SLICES, count) else n
            for d, n, count in zip(devices, slices, samples, strict=True)
        ]
        if more == slices:
            return None
        slices = more


def _in_cut(
    costed: CostedStep,
    cut: BatchCut,
    devices: Sequence[str],
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    choosing: _Choosing,
) -> tuple[CostedStep, _Divided | None]:
    """The step cut so, and with a first plan where one fits."""
    made = costed_in_shares(costed, cut, stores, reporter)
    clock = options.limits.clock
    began_s = clock.now_s()
    plan = first_plan(made.problem, made.lowered.share_of, devices, options.objective, clock)
    choosing.planned_s += clock.now_s() - began_s
    if plan is None:
        return made, None
    home = plan.problem.home
    housed = replace(made, lowered=replace(made.lowered, home=home), problem=plan.problem)
    return made, _Divided(replace(housed, offered=housed.lowered), plan)


def _in_buckets(
    costed: CostedStep,
    found: _Divided,
    devices: Sequence[str],
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
    choosing: _Choosing,
) -> _Divided:
    """The better one of the step as it is and with its sums in buckets of some sizes.

    The first size is what a link carries in its latency: a message of it takes twice the time that it would
    take in a larger one. Sizes that make the same buckets are tried once.
    """
    graph, cut = found.costed.problem.graph, found.costed.lowered.cut
    assert cut is not None
    kernels = found.costed.lowered.extraction.kernels
    sums = {op for op, kernel in kernels.items() if kernel.startswith(SUM_OF_SHARES)}
    links = found.costed.problem.platform.link_between
    between = [links[a, b] for a in devices for b in devices if a != b]
    first_bytes = max(link.latency_bytes for link in between)
    best, tried = found, {buckets_of(graph, sums, 0)}
    for doubled in range(_MOST_BUCKETINGS):
        size_bytes = int(first_bytes * 2**doubled) + 1
        buckets = buckets_of(graph, sums, size_bytes)
        if buckets in tried:
            continue
        if not choosing.has_time():
            break
        tried.add(buckets)
        reporter.status(f"adding gradients in {len(buckets)} buckets")
        _, trial = _in_cut(
            *(costed, replace(cut, bucket_bytes=size_bytes), devices, options, stores, reporter),
            choosing,
        )
        if trial is not None and trial.value(options) < best.value(options):
            best = trial
    reporter.status("")
    return best


def _over_budget(
    problem: Problem, share_of: Mapping[str, int], devices: Sequence[str], options: PlanOptions
) -> set[str]:
    """The devices on which a plan without budgets takes more memory than there is."""
    unlimited = problem.with_budgets(dict.fromkeys(problem.platform.index, UNLIMITED_BYTES))
    plan = first_plan(unlimited, share_of, devices, options.objective)
    if plan is None:
        return set()
    peak = plan.simulation.peak_bytes
    return {d for d in devices if peak[d] > problem.platform.device(d).budget_bytes}


def _copies_in_words(planned: PlannedStep) -> str:
    """What devices exchange in a step."""
    plan, kernels = planned.plan, planned.lowered.extraction.kernels
    graph = plan.problem.graph
    summed = {
        tensor
        for op in graph.ops
        if kernels[op.name].startswith(SUM_OF_SHARES)
        for tensor in (*graph.reads[op.name], *op.outputs)
    }
    sent = dict.fromkeys(("sums over the batch", "state", "other tensors"), 0)
    for step in plan.schedule.steps:
        if isinstance(step, Transfer):
            tensor = graph.tensor[step.tensor]
            kind = "state" if tensor.role.is_resident else "other tensors"
            kind = "sums over the batch" if step.tensor in summed else kind
            sent[kind] += tensor.size_bytes
    named = ", ".join(f"{format_bytes(size)} of {kind}" for kind, size in sent.items())
    size = 0 if planned.lowered.cut is None else planned.lowered.cut.bucket_bytes
    buckets = f"; gradients in buckets of {format_bytes(size)}" if size else ""
    return f"{plan.schedule.transfers} copies in a step: {named}{buckets}"


def _saying(planned: PlannedStep, *sentences: str) -> PlannedStep:
    result = planned.plan.result
    said = (result.message, time_limit_message(result), *sentences)
    message = "; ".join(dict.fromkeys(text for text in said if text))
    return replace(planned, plan=replace(planned.plan, result=replace(result, message=message)))
