"""Plans of packages that train some of the layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tvm_xengine.aot.layers.known import LayerState, StepLimits, flash_bytes, rows_of
from tvm_xengine.aot.options import ExportOptions, machine_of, stored_step
from tvm_xengine.aot.prepare import OnProgress, check_samples, plan_export
from tvm_xengine.aot.prepared import PreparedExport, check_flash, was_interrupted
from tvm_xengine.aot.sources import with_code
from tvm_xengine.checks.names import some
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.errors import MissingGradientError, NoScheduleError
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.subsets.choose import Refusal
from tvm_xengine.planning.subsets.relaxation import Row, Subset
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.result import Objective, Status
from tvm_xengine.training.step import TrainingStep

TrainingOf = Callable[[Sequence[str]], tuple[ForwardModel, TrainingStep]]
"""The model that trains the named parameters of ``main``, and its training step."""

_ANY_GAP_RATIO = 0.99
"""Whether a subset fits is answered by its first plan."""
_TRIAL_SHARE, _LEAST_TRIAL_S = 0.1, 2.0
"""Share of the time limit, and least seconds, for the plan of a subset that is tried: a subset takes some ten
trials to rule out. A greedy schedule is there before."""
_SURE_CODE_RATIO = 0.95
"""Every plan of a subset, or of one that contains it, has at least this share of the code of one plan. Larger
subsets of the layers of mlp, lenet and resnet8 had more code, plans of the same one differed by 0.5 %."""


@dataclass
class Trials:
    """Plans subsets of the layers.

    Attributes
    ----------
    count
        So many were planned.
    too_strict
        Rows that claim more than some plan takes.
    known
        What came of a subset with some time limit.
    is_stopped
        Whether an interrupt (Ctrl-C) has ended a trial; none should follow it.
    """

    layers: tuple[Layer, ...]
    training_of: TrainingOf
    options: ExportOptions
    limits: StepLimits
    on_progress: OnProgress
    count: int = field(default=0, init=False)
    too_strict: set[str] = field(default_factory=set, init=False)
    known: dict[tuple[Subset, float], PreparedExport | Refusal] = field(
        default_factory=dict, init=False
    )
    is_stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.limits.energy_uj is not None:
            check_energy(machine_of(self.options).platform, Objective.ENERGY)

    @cached_property
    def _everything(self) -> tuple[ForwardModel, TrainingStep]:
        return self._training(frozenset(range(len(self.layers))))

    @cached_property
    def state(self) -> LayerState:
        """Bytes of the state of each layer."""
        return LayerState(self.layers, stored_step(self._everything[1], self.options))

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return rows_of(self.state, self._everything[0], self.options, self.limits)

    def rows(self) -> dict[str, Row]:
        """What is known before anything is planned, without what a plan has disproved."""
        return {what: row for what, row in self._rows.items() if what not in self.too_strict}

    def plan_of(self, subset: Subset) -> PreparedExport | Refusal:
        """The package that trains the layers of a subset, or why there is none, in a trial's time."""
        limit_s = self.options.plan.limits.time_limit_s
        return self._plan_of(subset, min(limit_s, max(_LEAST_TRIAL_S, _TRIAL_SHARE * limit_s)))

    def plan_of_in_full(self, subset: Subset) -> PreparedExport | Refusal:
        """The same with all the time there is."""
        return self._plan_of(subset, self.options.plan.limits.time_limit_s)

    def _plan_of(self, subset: Subset, limit_s: float) -> PreparedExport | Refusal:
        if (subset, limit_s) not in self.known:
            try:
                self.known[subset, limit_s] = found = self._planned(subset, limit_s)
            except KeyboardInterrupt:
                self.is_stopped = True
                return Refusal("the search was interrupted")
            if not isinstance(found, Refusal):
                self._check_rows(found, subset)
        return self.known[subset, limit_s]

    def _check_rows(self, prepared: PreparedExport, subset: Subset) -> None:
        """Note each row that claims more than a plan takes."""
        plan = next(iter(prepared.functions.values())).plan
        taken = {
            "memory": float(sum(prepared.arena_bytes.values())),
            "time": plan.step_us(),
            "energy": plan.simulation.energy_uj,
        }
        self.too_strict |= {
            what
            for what, row in self._rows.items()
            if row.amount_of(subset) > taken.get(what, math.inf)
        }

    def _planned(self, subset: Subset, limit_s: float) -> PreparedExport | Refusal:
        self.count += 1
        named = some([self.layers[i].name for i in sorted(subset)], most=4)
        trial = f"trial {self.count}, training {named}"
        reason, is_proven = "", False
        try:
            model, step = self._training(subset)
            for options in _attempts(self.options, self.limits, limit_s):
                prepared = plan_export(
                    model, step, options, lambda text: self.on_progress(f"{trial}: {text}")
                )
                self.is_stopped |= was_interrupted(prepared)
                if refusal := self._too_much_flash(prepared, subset):
                    return refusal
                reason, is_proven = _exceeded(prepared, self.limits)
                if not reason:
                    prepared = with_code(prepared)
                    return self._too_much_flash(prepared, subset) or prepared
                if is_proven:
                    break
        except NoScheduleError as error:
            return Refusal(str(error), error.is_proven)
        except MissingGradientError as error:
            return Refusal(str(error), is_proven=True)
        return Refusal(reason, is_proven)

    def in_full(self, found: PreparedExport) -> PreparedExport:
        """The same package planned with all the time there is; `found` where that breaks a limit."""
        prepared = self._planned_in_full(found)
        check_samples(prepared, self.on_progress)
        return prepared

    def _planned_in_full(self, found: PreparedExport) -> PreparedExport:
        limits = self.options.plan.limits
        results = [function.plan.result for function in found.functions.values()]
        if self.is_stopped or all(
            one.status is Status.OPTIMAL or (one.gap is not None and one.gap <= limits.gap_ratio)
            for one in results
        ):
            return replace(found, options=self.options)
        try:
            full = plan_export(found.model, found.training, self.options, self.on_progress)
            full = with_code(full)
            check_flash(full)
        except KeyboardInterrupt:
            self.is_stopped = True
            return replace(found, options=self.options)
        except NoScheduleError:
            return replace(found, options=self.options)
        reason, _ = _exceeded(full, self.limits)
        return replace(found, options=self.options) if reason else full

    def _training(self, subset: Subset) -> tuple[ForwardModel, TrainingStep]:
        return self.training_of(
            [name for i in sorted(subset) for name in self.layers[i].parameters]
        )

    def _too_much_flash(self, prepared: PreparedExport, subset: Subset) -> Refusal | None:
        """Why constants, initial state and what is compiled do not fit; None where they do.

        It is proven where no larger subset takes less.
        """
        try:
            check_flash(prepared)
        except NoScheduleError as error:
            others = sum(size for i, size in enumerate(self.state.zero_bytes) if i not in subset)
            code = prepared.code
            least = prepared.flash_bytes - others
            least += 0 if code is None else int(_SURE_CODE_RATIO * code.text_bytes)
            limit = flash_bytes(self.options)
            assert limit is not None
            return Refusal(str(error), is_proven=least > limit, is_measured=code is not None)
        return None


def _attempts(asked: ExportOptions, step: StepLimits, limit_s: float) -> Iterator[ExportOptions]:
    """Options for the first plan, and for plans of the least time and energy where they are limited."""
    plan = asked.plan
    wanted = [(plan.objective, max(_ANY_GAP_RATIO, plan.limits.gap_ratio))]
    if step.time_us is not None:
        is_energy = plan.objective is Objective.ENERGY
        wanted.append((Objective.COST if is_energy else plan.objective, plan.limits.gap_ratio))
    if step.energy_uj is not None:
        wanted.append((Objective.ENERGY, plan.limits.gap_ratio))
    for objective, gap_ratio in wanted:
        limits = replace(plan.limits, time_limit_s=limit_s, gap_ratio=gap_ratio)
        yield replace(asked, plan=replace(plan, objective=objective, limits=limits))


def _exceeded(prepared: PreparedExport, limits: StepLimits) -> tuple[str, bool]:
    """Which limit the leading function exceeds, and whether every plan of it does; empty for none."""
    plan = next(iter(prepared.functions.values())).plan
    time_us, energy_uj = plan.step_us(), plan.simulation.energy_uj
    for what, unit, value, limit, objective in (
        ("time", "us", time_us, limits.time_us, Objective.COST),
        ("energy", "uJ", energy_uj, limits.energy_uj, Objective.ENERGY),
    ):
        if limit is not None and value > limit:
            least = _least(plan, objective)
            return (
                f"the {what} of a step is {value:.6g} {unit}, {least:.6g} {unit} in any plan, more than"
                f" {limit:.6g} {unit}",
                least > limit,
            )
    return "", False


def _least(plan: Plan, objective: Objective) -> float:
    """A bound on the time or energy of every plan of a function."""
    is_time, result = objective is Objective.COST, plan.result
    asked = result.objective
    is_same = asked is objective or (is_time and asked is Objective.MAKESPAN)
    bound = result.bound if is_same else 0.0
    if is_time and plan.is_overlapped:
        return bound
    return max(bound, float(index_problem(plan.problem, objective).cheapest))
