"""The stages from a model to a plan, each a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.checks.names import some
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.compiler.kernel_choice import with_fastest_kernels
from tvm_xengine.compiler.lean.slices import cut_step
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.options import Budgets
from tvm_xengine.compiler.plan import PlannedStep
from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import (
    InvalidInputError,
    InvalidPlatformError,
    InvalidScheduleError,
    UnsupportedModelError,
)
from tvm_xengine.explain.explanation import ExplainOptions, Explanation, explain_plan
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names, names_of_ops, source_names
from tvm_xengine.files.atomic_write import write_atomically, write_bytes_atomically
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.model.learning_rates import as_inputs, current_rates
from tvm_xengine.model.source import Source
from tvm_xengine.passes.slices.slice_batch import batch_extent
from tvm_xengine.planning.plan import Plan
from tvm_xengine.relax_ir.kernel_calls import read_origins
from tvm_xengine.relax_ir.kernel_hash import kernel_hash
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.report.figures.memory_snapshot import memory_snapshot
from tvm_xengine.report.figures.trace import trace
from tvm_xengine.report.figures.write import write_figures
from tvm_xengine.report.html.notebook import framed
from tvm_xengine.report.html.page import FRONT_SHARE, Page, check_page_path
from tvm_xengine.report.html.story import Intervals, Story
from tvm_xengine.report.summary import PlanSummary, summarize_plan
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import OpCost, Problem, problem_to_json
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.sizes import MOST_RATIO, UNLIMITED_BYTES, format_bytes, parse_bytes
from tvm_xengine.session.plans.plan_file import SavedPlan, read_plan, write_plan
from tvm_xengine.solvers.result import Scope
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep

_MOST_NAMED = 8
"""So many tensors of a kind stand in a plan's report; large networks have hundreds."""
_LEAST_BYTES = 64
"""Tensors are aligned to so many bytes; a whole number below it was meant as a ratio."""

BudgetLike = str | int | float | Mapping[str, str | int] | None
"""Bytes (``"512MiB"``) of the home device, or by device; a float is a ratio, None no limit."""


@dataclass(frozen=True)
class Training:
    """A training step before it is lowered.

    Attributes
    ----------
    source
        What it was made from.
    recipe
        Loss, optimizer and their options; None where the step brings its own.
    step
        The Relax function and its initial state.
    """

    source: Source
    recipe: Recipe | None
    step: TrainingStep

    @property
    def roles(self) -> tuple[TensorRole, ...]:
        """Which tensors are trained, frozen, statistics and constants, and their names."""
        return self.source.training.roles

    @property
    def known_recipe(self) -> Recipe:
        """Loss, optimizer and their options.

        Raises
        ------
        UnsupportedModelError
            If the step brings its own.
        """
        if self.recipe is None:
            raise UnsupportedModelError(
                f"{self.step.name} is a training step with its own loss and optimizer, of which only"
                " the state is known; this needs a step made by training_step"
            )
        return self.recipe

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the model."""
        return self.source.training.notes

    def arguments(self, batch: Mapping[str, Array], lr: float | None = None) -> list[Array]:
        """What a call of the step's Relax function takes before its state.

        Parameters
        ----------
        batch
            Arrays of the inputs and labels by name; of a step of one's own, of all that is given
            for each step.
        lr
            Learning rate; None takes that of the optimizer. Groups of parameters keep the ratio of
            their rates to it.

        Raises
        ------
        InvalidInputError
            If an array is missing.
        """
        rates: dict[str, Array] = {}
        if self.recipe is not None:
            rate = self.recipe.optimizer.lr if lr is None else lr
            rates = as_inputs(current_rates(self.recipe, None, rate, 0), self.step.hyper_names)
        given = {**batch, **rates}
        names = (*self.step.batch_names, *self.step.hyper_names)
        if missing := [name for name in names if name not in given]:
            raise InvalidInputError(f"a step takes {some(names)}; {some(missing)} is missing")
        return [given[name] for name in names]

    def report(self, *, most: int | None = None) -> str:
        """What is trained, frozen and shared, in lines.

        Parameters
        ----------
        most
            So many names stand in a line, with the number of the others; None names all.
        """
        loss = "of the step itself" if self.recipe is None else _name_of(self.recipe.loss)
        lines = [f"loss: {loss}"]
        for use in Use:
            found = [role for role in self.roles if role.use is use]
            if found:
                more = f" and {len(found) - most} more" if most and len(found) > most else ""
                named = ", ".join(_described(role) for role in found[:most])
                lines.append(f"{use.value}: {named}{more}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class Lowered:
    """A training step as kernel calls for the devices of a platform.

    Attributes
    ----------
    training
        What was lowered.
    step
        The module of kernel calls, and its graph.
    stores
        Where measurements and compiled kernels are kept.
    reporter
        Is told of progress.
    """

    training: Training
    step: LoweredStep
    stores: Stores = field(repr=False)
    reporter: Reporter = field(repr=False)

    @property
    def platform(self) -> Platform:
        """The devices it was lowered for."""
        return self.step.platform

    @property
    def fingerprint(self) -> str:
        """A hash of the graph, its kernels and the devices; equal steps have equal fingerprints."""
        return self.fingerprint_of(self.step.extraction.graph, self.platform)

    def in_slices(self, slices: int) -> Lowered | None:
        """The same step in equal slices of its batch; None where it cannot be divided so."""
        size = batch_extent(self.step.mod[self.step.func_name])
        return None if size % slices else self.with_cut(BatchCut.equal(size, slices))

    def with_cut(self, cut: BatchCut | None) -> Lowered | None:
        """The same step on a batch that is cut; None where no call can be divided so."""
        if cut is None or len(cut.samples) == 1:
            return self
        step = cut_step(self.step, cut, PreparedKernels(self.platform, self.stores.tuned))
        return None if step is None else replace(self, step=step)

    def fingerprint_of(self, graph: OpGraph, platform: Platform) -> str:
        """The hash with another graph and other devices for the same kernels."""
        mod, kernels = self.step.mod, self.step.extraction.kernels
        hashes = {name: kernel_hash(mod[name]) for name in sorted(set(kernels.values()))}
        return _fingerprint(
            Problem(graph, _unlimited(platform), _no_costs(graph, platform)), hashes
        )


@dataclass(frozen=True)
class StepProblem:
    """The scheduling problem of a lowered step, with the costs of its kernels.

    Attributes
    ----------
    lowered
        The step that is scheduled.
    costed
        Its kernels with their costs.
    """

    lowered: Lowered
    costed: CostedStep

    @property
    def problem(self) -> Problem:
        """Plain numbers: ops, tensors, costs, budgets."""
        return self.costed.problem

    @checked
    def with_budget(self, budget: BudgetLike) -> StepProblem:
        """The same problem under a budget."""
        budgets = budgets_of(budget, self.lowered.platform)
        return replace(self, costed=self.costed.with_budgets(budgets))

    @checked
    def with_budget_ratio(self, ratio: float) -> StepProblem:
        """The same problem with every device at the state plus `ratio` of the rest of keep-all."""
        return self.with_budget(float(ratio))

    @checked
    def save(self, path: str | Path) -> None:
        """Write the numbers as JSON, which can be solved without a compiler."""
        write_atomically(Path(path), problem_to_json(self.problem))


@dataclass(frozen=True)
class StepPlan:
    """A planned step: schedule, addresses, and how good they are.

    Attributes
    ----------
    lowered
        The step that was planned.
    planned
        The plan, with the kernels that it chose.
    """

    lowered: Lowered
    planned: PlannedStep

    @property
    def plan(self) -> Plan:
        """The schedule, its simulation and its arenas."""
        return self.planned.plan

    @property
    def summary(self) -> PlanSummary:
        """The figures of the plan, before the step runs."""
        planned = self.planned
        model = self.lowered.training.source.training
        return summarize_plan(
            model.name,
            planned.plan,
            batch=model.batch_size,
            measured_kernels=planned.measured_kernels,
            all_kernels=len(planned.lowered.distinct),
            source_of=lambda op, device: planned.lowered.kernel(op, device).source,
        )

    def report(self) -> str:
        """Memory, time and proof of the plan, and what it trains, in lines.

        Of many tensors some are named; `Training.report` names all.
        """
        summary = self.summary
        gap = "" if summary.gap is None else f", at most {100 * summary.gap:.2f} % from the optimum"
        scope = self.plan.result.scope
        among = "" if not gap or scope is Scope.EVERY_SCHEDULE else f" of {scope.words}"
        lines = [f"{summary.model}: {summary.status} ({summary.solver}){gap}{among}"]
        lines.append(
            f"step: {summary.step_us_predicted / 1000:.3g} ms predicted,"
            f" {summary.recomputed_ops} ops recomputed, {summary.transfers} transfers"
        )
        lines += [
            f"{device.name}: {format_bytes(device.planned_arena_bytes)} of"
            f" {format_bytes(device.budget_bytes)}"
            for device in summary.devices
        ]
        lines += [f"note: {summary.message}"] if summary.message else []
        return "\n".join([*lines, self.lowered.training.report(most=_MOST_NAMED)])

    @checked
    def explain(self, about: str | None = None, *, price_s: float = 0.0) -> Explanation:
        """What happens to each tensor and why, what binds, and what would help.

        Parameters
        ----------
        about
            Name or pattern of tensors, ops or layers, or a device; None is the whole plan.
        price_s
            Seconds for solving again with more memory, per device; 0 leaves the price out.

        Raises
        ------
        InvalidProblemError
            If nothing has the name that is asked about; the message has similar ones.
        """
        return explain_plan(self.plan, ExplainOptions(about, price_s), self.names)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names that the model gives the tensors of the step, by their names in the step.

        What is computed keeps its name; line and module of the model's source stand behind it.
        """
        training, step = self.lowered.training, self.planned.lowered
        of_source = {
            name: source_names(name, at.line, at.module, at.call)
            for name, at in training.source.training.places.items()
        }
        origins = read_origins(step.mod[step.func_name])
        of_ops = names_of_ops(step.extraction.kernels, origins, of_source)
        roles = {role.variable: role.names for role in training.roles}
        return {**of_source, **of_ops, **roles}

    @checked
    def write_report(
        self, path: str | Path, *, price_s: float = 3.0, measured_us: Intervals | None = None
    ) -> None:
        """Write a page with pictures of the plan, complete in one HTML file.

        Parameters
        ----------
        path
            File to write.
        price_s
            As in `explain`; other budgets are solved for twice as long.
        measured_us
            When each step of the schedule began and ended in a run, in microseconds, shown beside
            the plan; see `Step.timed`.

        Raises
        ------
        ValueError
            If the path ends in something else than ``.html``.
        """
        check_page_path(Path(path))
        model = self.lowered.training.source.training
        title = f"{model.name}, batch {model.batch_size}"
        names = Names(self.plan.problem.graph, self.names)
        options = ExplainOptions(None, price_s, FRONT_SHARE * price_s)
        found = explain_plan(self.plan, options, self.names)
        Page(title, self.plan, names, found, measured_us).write(Path(path))

    @checked
    def write_figures(self, folder: str | Path) -> None:
        """Write pictures for papers: memory over time, arenas and timeline, as PDF, PNG and SVG.

        Raises
        ------
        MissingPackageError
            If matplotlib is not installed.
        """
        write_figures(self._story, Path(folder))

    @checked
    def write_trace(self, path: str | Path, measured_us: Intervals | None = None) -> None:
        """Write the planned timeline as JSON, which Perfetto opens.

        Parameters
        ----------
        path
            File to write.
        measured_us
            When each step of the schedule began and ended in a run, shown beside the plan; see
            `Step.trace`.
        """
        write_atomically(Path(path), trace(self._story, measured_us))

    @checked
    def write_memory_snapshot(self, path: str | Path) -> None:
        """Write the planned memory as a pickle, which PyTorch's memory viewer opens."""
        write_bytes_atomically(Path(path), memory_snapshot(self._story))

    @property
    def _story(self) -> Story:
        return Story(Memory(self.plan, Names(self.plan.problem.graph, self.names)))

    def _repr_html_(self) -> str:
        return framed(self.report(), self._story)

    @checked
    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, complete or not at all."""
        sources = {
            f"{name}@{device}": kernel.source
            for (name, device), kernel in self.planned.lowered.kernels.items()
        }
        measured = self.planned.measured_kernels
        fingerprint = self.lowered.fingerprint
        cut = self.planned.lowered.cut
        saved = SavedPlan(fingerprint, self.plan, sources, measured, self.names, cut)
        write_plan(saved, Path(path))

    @classmethod
    @checked
    def load(cls, path: str | Path, lowered: Lowered) -> StepPlan:
        """The plan in a file, for the step that it was made for.

        Raises
        ------
        InvalidScheduleError
            If the file is no plan, or of another model, batch size, optimizer or platform.
        """
        saved, wanted = read_plan(Path(path)), lowered.fingerprint
        if saved.fingerprint != wanted:
            raise InvalidScheduleError(
                f"{path} is the plan of another step: its model, batch size, loss, optimizer or"
                " platform differ from those given; plan again"
            )
        problem, offered = saved.plan.problem, lowered.with_cut(saved.cut)
        if offered is None or offered.fingerprint != offered.fingerprint_of(
            problem.graph, problem.platform
        ):
            raise InvalidScheduleError(
                f"{path} is damaged: its ops, tensors or devices are not those of its step"
            )
        step = with_fastest_kernels(
            offered.step, _preferring(offered.step, saved.sources), lowered.stores.tuned
        )
        return cls(lowered, PlannedStep(step, saved.plan, saved.measured_kernels))


def check_plan_is_of(plan: StepPlan, lowered: Lowered) -> None:
    """Refuse a plan of another step.

    Raises
    ------
    InvalidScheduleError
        If the plan is of another step.
    """
    if plan.lowered is not lowered and plan.lowered.fingerprint != lowered.fingerprint:
        raise InvalidScheduleError("the plan was made for another step; plan this one")


def check_budget(budget: BudgetLike) -> None:
    """Refuse what is no budget on any platform.

    Raises
    ------
    ValueError
        If a size cannot be read, a ratio is negative or not finite, or a whole number is so small that a
        ratio must have been meant.
    """
    if isinstance(budget, float | np.floating):
        if not 0 <= budget < float("inf"):
            raise ValueError(f"expected a budget ratio of at least 0, got {budget}")
        if budget > MOST_RATIO:
            raise ValueError(
                f"a float is a ratio of what keep-all needs, and {budget:g} is none; a size in bytes is a"
                f" whole number: budget={budget:.0f}"
            )
        return
    if isinstance(budget, int | np.integer) and 0 <= budget < _LEAST_BYTES:
        raise ValueError(
            f"a whole number is a size in bytes, and {budget} B hold no tensor; a ratio is a float:"
            f" budget={float(budget)}"
        )
    sizes = budget.values() if isinstance(budget, Mapping) else () if budget is None else (budget,)
    for size in sizes:
        try:
            parse_bytes(size)
        except ValueError as error:
            raise ValueError(f"budget: {error}") from None


def budgets_of(budget: BudgetLike, platform: Platform) -> Budgets:
    """The budgets that an argument describes.

    Raises
    ------
    InvalidPlatformError
        If a single size is given for several devices, or a device is unknown.
    """
    check_budget(budget)
    if budget is None:
        return Budgets()
    if isinstance(budget, float | np.floating):
        return Budgets(ratio=float(budget))
    if isinstance(budget, Mapping):
        budgets = Budgets(device_bytes={name: parse_bytes(size) for name, size in budget.items()})
    elif len(platform.computing) > 1:
        names = ", ".join(device.name for device in platform.computing)
        raise InvalidPlatformError(
            f"the platform has several devices that compute ({names}); say whose budget"
            f" {budget!r} is, such as {{{platform.home!r}: {budget!r}}}"
        )
    else:
        budgets = Budgets(device_bytes={platform.computing[0].name: parse_bytes(budget)})
    budgets.check(platform)
    return budgets


def _preferring(step: LoweredStep, sources: Mapping[str, str]) -> KernelCosts:
    """Costs by which every kernel of the source that a plan chose is the fastest."""
    wanted = {
        (kernel.name, source)
        for (name, device), kernel in step.kernels.items()
        if (source := sources.get(f"{name}@{device}")) is not None
    }

    def costs(kernels: Sequence[DeviceKernel], /) -> Mapping[str, OpCost]:
        return {k.symbol: OpCost(1.0 if (k.name, k.source) in wanted else 2.0) for k in kernels}

    return costs


def _fingerprint(problem: Problem, kernels: Mapping[str, str]) -> str:
    document = {**json.loads(problem_to_json(problem)), "kernels": kernels}
    del document["costs"], document["links"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _unlimited(platform: Platform) -> Platform:
    links = tuple(replace(link, latency_us=0.0, bandwidth_gb_s=1.0) for link in platform.links)
    budgets = {device.name: UNLIMITED_BYTES for device in platform.devices}
    return replace(platform.with_budgets(budgets), links=links, handover_us=None)


def _no_costs(graph: OpGraph, platform: Platform) -> dict[str, dict[str, OpCost]]:
    devices = [device.name for device in platform.computing]
    return {op.name: dict.fromkeys(devices, OpCost(1.0)) for op in graph.ops}


def _described(role: TensorRole) -> str:
    shared = f" (shared with {', '.join(role.also)})" if role.also else ""
    reason = f" ({role.reason})" if role.reason else ""
    return f"{role.name}{shared}{reason}"


def _name_of(value: object) -> str:
    return getattr(value, "__name__", type(value).__name__)
