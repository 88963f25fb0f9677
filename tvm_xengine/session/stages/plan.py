"""A planned step: its figures, its explanation, its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.costs import KernelCosts
from tvm_xengine.compiler.kernel_choice import with_fastest_kernels
from tvm_xengine.compiler.lean.kernels import variant_label, with_saved_variants
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.errors import (
    InvalidScheduleError,
)
from tvm_xengine.explain.explanation import ExplainOptions, Explanation, explain_plan
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names, names_of_ops, source_names
from tvm_xengine.files.atomic_write import write_atomically, write_bytes_atomically
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.relax_ir.kernel_calls import read_origins
from tvm_xengine.report.figures.memory_snapshot import memory_snapshot
from tvm_xengine.report.figures.trace import trace
from tvm_xengine.report.figures.write import write_figures
from tvm_xengine.report.html.notebook import framed
from tvm_xengine.report.html.page import FRONT_SHARE, Page, check_page_path
from tvm_xengine.report.html.story import Intervals, Story
from tvm_xengine.report.summary import PlanSummary, summarize_plan
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes
from tvm_xengine.session.plans.plan_file import SavedPlan, read_plan, write_plan
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.solvers.result import Scope

_MOST_NAMED = 8
"""So many tensors of a kind stand in a plan's report; large networks have hundreds."""


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
            slices=planned.lowered.slices,
            measured_kernels=planned.measured_kernels,
            all_kernels=len(planned.lowered.distinct),
            source_of=lambda *run: planned.lowered.kernel(*run).source,
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
            f"{device.name}: {format_bytes(device.planned_arena_bytes)}"
            + (
                ", no limit"
                if device.budget_bytes == UNLIMITED_BYTES
                else f" of {format_bytes(device.budget_bytes)}"
            )
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
        sources |= {
            variant_label(*key, variant): kernel.source
            for key, named in self.planned.lowered.variants.items()
            for variant, kernel in named.items()
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
        step = with_saved_variants(step, offered.step.kernels, saved.sources, lowered.stores.tuned)
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
