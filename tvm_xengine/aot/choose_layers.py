"""Which layers a package trains: those of the greatest score whose functions fit memory, time and energy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.contents import is_zero_bytes
from tvm_xengine.aot.plan.layer_costs import least_forward_bytes, op_amounts
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import FLASH
from tvm_xengine.aot.prepare import (
    ExportOptions,
    OnProgress,
    PreparedExport,
    check_flash,
    check_samples,
    machine_of,
    plan_export,
    stored_step,
)
from tvm_xengine.checks.names import some
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.errors import ExportError, MissingGradientError, NoScheduleError
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.subsets.choose import Choice, Refusal, choose_subset
from tvm_xengine.planning.subsets.relaxation import Row, Subset
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.result import Objective, Status
from tvm_xengine.training.step import TrainingStep

STATE = "memory"
"""The row of the state, and of what a forward pass takes beside it."""
_UNITS = {"time": "us", "energy": "uJ"}
"""Of the rows that are not of bytes."""

TrainingOf = Callable[[Sequence[str]], tuple[ForwardModel, TrainingStep]]
"""The model that trains the named parameters of ``main``, and its training step."""

_ANY_GAP_RATIO = 0.99
"""Whether a subset fits is answered by its first plan."""
_TRIAL_SHARE, _LEAST_TRIAL_S = 0.1, 2.0
"""Share of the time limit, and least seconds, for the plan of a subset that is tried: a subset takes some ten
trials to rule out. A greedy schedule is there before."""

_SURE_RATIO = 0.97
"""An op takes at least this share of its time and energy in a step that trains fewer layers, where it is
fused with others. Over subsets of the layers of mlp, lenet, resnet8 and ds_cnn the sum was up to 1 % off."""
_MOST_REASONS = 3
"""So many layers stand in the message that none can be trained."""


@dataclass(frozen=True)
class StepLimits:
    """What a step of the chosen layers may take beside memory; None does not limit.

    Attributes
    ----------
    rewrites_frozen
        Whether frozen layers compute in another way than in the step that trains all layers, so that this
        step says nothing of their memory, time and energy.
    """

    time_us: float | None = None
    energy_uj: float | None = None
    rewrites_frozen: bool = False


@dataclass(frozen=True)
class LayerChoice:
    """The layers that a package trains.

    Attributes
    ----------
    layers
        From which were chosen.
    choice
        The best subset of them, with bound, number of plans and what has no plan.
    rows
        Limits that every subset obeys, by what they are of.
    state_bytes
        Parameters and optimizer state of each layer.
    prepared
        The package of the chosen layers.
    """

    layers: tuple[Layer, ...]
    choice: Choice[PreparedExport]
    rows: dict[str, Row]
    state_bytes: tuple[int, ...]
    prepared: PreparedExport

    @property
    def is_trained(self) -> dict[str, bool]:
        """Whether each layer is trained, by name."""
        chosen = self.choice.chosen or frozenset()
        return {layer.name: at in chosen for at, layer in enumerate(self.layers)}

    @property
    def total_score(self) -> float:
        """Of all layers."""
        return sum(layer.score for layer in self.layers)

    @property
    def is_unproven(self) -> bool:
        """Whether some subset was left because no plan was found, and not because there is none."""
        return not all(refusal.is_proven for refusal in self.choice.refused.values())

    def reason(self, at: int) -> str:
        """Why a layer is not trained; empty for one that is."""
        return why_not(self.layers, self.choice, self.rows, at)


def choose_layers(
    layers: Sequence[Layer],
    training_of: TrainingOf,
    options: ExportOptions,
    limits: StepLimits,
    most_plans: int,
    on_progress: OnProgress = lambda _: None,
) -> LayerChoice:
    """The layers of the greatest total score that can be trained in the memory, time and energy given.

    Each subset that is tried is planned as `prepare_export` plans it; the chosen one is then planned with
    the full time limit. The bound takes two things for granted: to train more layers never needs less, and
    ops take nearly as much in a step that trains fewer (`_SURE_RATIO`).

    Parameters
    ----------
    options
        Memory is limited by their regions or platform.
    most_plans
        So many subsets are planned at most.

    Raises
    ------
    ExportError
        If no entry point of the package trains.
    InvalidPlatformError
        If energy is limited and the platform does not say what ops take.
    NoScheduleError
        If no layer can be trained; it says why for each.
    """
    if not any(entry.learns for entry in options.entries):
        raise ExportError(
            "layers are chosen to be trained, but no entry point trains: add train_step, or accumulate"
            " and apply"
        )
    trials = _Trials(tuple(layers), training_of, options, limits, on_progress)
    rows = trials.rows()
    scores = [layer.score for layer in layers]
    choice = choose_subset(scores, list(rows.values()), trials.plan_of, most_plans)
    if choice.plan is None:
        reasons = [
            f"{layer.name}: {why_not(trials.layers, choice, rows, at)}"
            for at, layer in enumerate(layers[:_MOST_REASONS])
        ]
        if choice.plans >= most_plans and choice.bound > 0:
            raise NoScheduleError(
                f"no layers to train were found in {choice.plans} trials of subsets; allow more with"
                " --train-budget trials=N (most_trials)"
            )
        raise NoScheduleError(f"no layer can be trained; {'; '.join(reasons)}")
    state_bytes = tuple(trials.state_bytes)
    return LayerChoice(trials.layers, choice, rows, state_bytes, trials.in_full(choice.plan))


@dataclass
class _Trials:
    """Plans subsets of the layers."""

    layers: tuple[Layer, ...]
    training_of: TrainingOf
    options: ExportOptions
    limits: StepLimits
    on_progress: OnProgress
    count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.limits.energy_uj is not None:
            check_energy(machine_of(self.options).platform, Objective.ENERGY)

    @cached_property
    def state_bytes(self) -> list[int]:
        """Parameters and optimizer state of each layer."""
        return [sum(size for size, _ in self._state_of(layer)) for layer in self.layers]

    @cached_property
    def parameter_bytes(self) -> list[int]:
        """Parameters of each layer, and so the sums of their gradients."""
        return [
            sum(size for size, _ in self._state_of(layer, slots=False)) for layer in self.layers
        ]

    @cached_property
    def zero_bytes(self) -> list[int]:
        """Parameters of each layer that take flash only where they are frozen: they start as zeros."""
        return [
            sum(size for size, is_zero in self._state_of(layer, slots=False) if is_zero)
            for layer in self.layers
        ]

    @cached_property
    def _all_trained(self) -> tuple[ForwardModel, TrainingStep]:
        return self._training(frozenset(range(len(self.layers))))

    @property
    def _model(self) -> ForwardModel:
        return self._all_trained[0]

    @cached_property
    def _everything(self) -> TrainingStep:
        return stored_step(self._all_trained[1], self.options)

    def _state_of(self, layer: Layer, *, slots: bool = True) -> Iterator[tuple[int, bool]]:
        """Bytes of the state of a layer, and whether it starts as zeros."""
        step = self._everything
        for parameter in layer.parameters:
            of_optimizer = step.slots.get(parameter, {}).values() if slots else ()
            for name in (parameter, *of_optimizer):
                value = step.initial_state.get(name)
                if value is not None:
                    yield int(value.nbytes), is_zero_bytes(value)

    def rows(self) -> dict[str, Row]:
        """What the chosen layers take at least, by what it is."""
        machine = machine_of(self.options)
        found = {STATE: self._state_row(machine)}
        if (flash := flash_bytes(self.options)) is not None:
            initial = [
                float(sum(size for size, is_zero in self._state_of(layer) if not is_zero))
                for layer in self.layers
            ]
            found["initial state in flash"] = Row.of_each(initial, flash)
        limits = self.limits
        has_limit = limits.time_us is not None or limits.energy_uj is not None
        is_same = not limits.rewrites_frozen
        if has_limit and is_same and Entry.TRAIN_STEP in self.options.entries:
            found |= self._rows_of_ops(machine)
        return found

    def _state_row(self, machine: Machine) -> Row:
        """The state lies in one region, and if there is no other one, beside all that an op takes."""
        devices = machine.platform.devices
        most = max(device.budget_bytes for device in devices)
        row = Row.of_each(list(map(float, self.state_bytes)), most)
        if len(devices) == 1 and Entry.ACCUMULATE in self.options.entries:
            sums = [float(size) for size in self.parameter_bytes]
            row = Row.of_each([a + b for a, b in zip(self.state_bytes, sums, strict=True)], most)
        if len(devices) > 1 or self.options.storage is not None or self.limits.rewrites_frozen:
            return row
        return replace(row, base=least_forward_bytes(self._model, machine, self.options.optimize))

    def _rows_of_ops(self, machine: Machine) -> dict[str, Row]:
        """Time and energy of the ops that the update of each layer follows from."""
        step = self._everything
        layer_of = {
            name: at
            for at, layer in enumerate(self.layers)
            for parameter in layer.parameters
            for name in (parameter, *step.slots.get(parameter, {}).values())
        }
        amounts = op_amounts(step, machine, self.options.optimize, layer_of)
        found = {}
        overlaps = self.options.plan.objective is Objective.MAKESPAN
        if self.limits.time_us is not None and not overlaps:
            found["time"] = _sure(amounts.time_us, self.limits.time_us, amounts.base_us)
        if self.limits.energy_uj is not None:
            found["energy"] = _sure(amounts.energy_uj, self.limits.energy_uj, amounts.base_uj)
        return found

    def plan_of(self, subset: Subset) -> PreparedExport | Refusal:
        """The package that trains the layers of a subset, or why there is none."""
        self.count += 1
        named = some([self.layers[i].name for i in sorted(subset)], most=4)
        trial = f"trial {self.count}, training {named}"
        reason, is_proven = "", False
        try:
            model, step = self._training(subset)
            for options in self._attempts():
                prepared = plan_export(
                    model, step, options, lambda text: self.on_progress(f"{trial}: {text}")
                )
                self._check_flash(prepared, subset)
                reason, is_proven = _exceeded(prepared, self.limits)
                if not reason:
                    return prepared
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
        if all(
            one.status is Status.OPTIMAL or (one.gap or 0.0) <= limits.gap_ratio for one in results
        ):
            return replace_options(found, self.options)
        try:
            full = plan_export(found.model, found.training, self.options, self.on_progress)
        except NoScheduleError:
            return replace_options(found, self.options)
        reason, _ = _exceeded(full, self.limits)
        return replace_options(found, self.options) if reason else full

    def _training(self, subset: Subset) -> tuple[ForwardModel, TrainingStep]:
        return self.training_of(
            [name for i in sorted(subset) for name in self.layers[i].parameters]
        )

    def _attempts(self) -> Iterator[ExportOptions]:
        """Options for the first plan, and for plans of the least time and energy where they are limited."""
        plan = self.options.plan
        trial_s = min(
            plan.limits.time_limit_s, max(_LEAST_TRIAL_S, _TRIAL_SHARE * plan.limits.time_limit_s)
        )
        wanted = [(plan.objective, max(_ANY_GAP_RATIO, plan.limits.gap_ratio))]
        if self.limits.time_us is not None:
            is_energy = plan.objective is Objective.ENERGY
            wanted.append((Objective.COST if is_energy else plan.objective, plan.limits.gap_ratio))
        if self.limits.energy_uj is not None:
            wanted.append((Objective.ENERGY, plan.limits.gap_ratio))
        for objective, gap_ratio in wanted:
            limits = replace(plan.limits, time_limit_s=trial_s, gap_ratio=gap_ratio)
            yield replace(self.options, plan=replace(plan, objective=objective, limits=limits))

    def _check_flash(self, prepared: PreparedExport, subset: Subset) -> None:
        """Whether constants and initial state fit, with a proof only where no larger subset takes less."""
        try:
            check_flash(prepared)
        except NoScheduleError as error:
            others = sum(size for i, size in enumerate(self.zero_bytes) if i not in subset)
            limit = flash_bytes(self.options)
            assert limit is not None
            raise NoScheduleError(
                str(error), is_proven=prepared.flash_bytes - others > limit
            ) from error


def _sure(amounts: Mapping[Subset, float], limit: float, base: float) -> Row:
    """The row of what ops take in the step that trains all layers."""
    sure = {group: _SURE_RATIO * amount for group, amount in amounts.items()}
    return Row(sure, limit, _SURE_RATIO * base)


def flash_bytes(options: ExportOptions) -> int | None:
    """The size of the region of constants and initial state; None where it is not limited."""
    return next((one.size_bytes for one in options.regions if one.name == FLASH), None)


def replace_options(prepared: PreparedExport, options: ExportOptions) -> PreparedExport:
    """The same plans under the options that were asked for."""
    return replace(prepared, options=options)


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


def why_not(
    layers: Sequence[Layer], choice: Choice[PreparedExport], rows: dict[str, Row], at: int
) -> str:
    """Why a layer is not trained; empty for one that is."""
    chosen = choice.chosen or frozenset()
    if at in chosen:
        return ""
    if not layers[at].score > 0:
        return "its score is 0"
    for what, row in rows.items():
        if (needed := row.amount_of(frozenset({at}))) > row.limit:
            return _too_much("alone", what, needed, row.limit)
    refusals = [(subset, r) for subset, r in choice.refused.items() if at in subset]
    for subset, refusal in sorted(refusals, key=lambda pair: len(pair[0])):
        if subset - {at} <= chosen:
            others = some([layers[i].name for i in sorted(subset - {at})], most=4)
            return f"with {others} trained, {refusal.reason}" if others else refusal.reason
    for what, row in rows.items():
        if (needed := row.amount_of(chosen | {at})) > row.limit:
            return _too_much("with what is trained", what, needed, row.limit)
    return "other layers have a greater score together"


def _too_much(beside: str, what: str, needed: float, limit: float) -> str:
    unit = _UNITS.get(what, "bytes")
    return f"{beside} it takes {needed:.6g} {unit} of {what} at least, more than {limit:.6g}"
