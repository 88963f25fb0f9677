"""What every form of an export begins with: its functions planned, and the run of the self-test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tvm_xengine.aot.check.single_samples import check_single_samples
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.options import ExportOptions, machine_of, stored_step
from tvm_xengine.aot.package.names import check_region_names
from tvm_xengine.aot.plan.kernels import Backend, code_target
from tvm_xengine.aot.plan.plan_beside_state import SharedFunction, plan_evaluation, plan_shared
from tvm_xengine.aot.plan.plan_step import plan_as_planned, plan_training
from tvm_xengine.aot.plan.planned import PlannedFunction, StateLayout
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.state_layout import lay_out_state, with_sums
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.lean.short_storage import ShortStorage
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.errors import ExportError
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.plan import Plan
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.evaluation import result_names
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.single_samples import SingleSamples, build_single_samples
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]
OnPlan = Callable[[Plan], None]
"""Takes the plan of the training step when there is one."""


def prepare_export(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    on_progress: OnProgress,
    on_plan: OnPlan = lambda _: None,
) -> PreparedExport:
    """Plan the training step and the evaluation, and compare single samples with a batch.

    Raises
    ------
    InvalidPlatformError
        If the target is unknown.
    InvalidScheduleError
        If a schedule is given that breaks a rule of the step.
    NoScheduleError
        If the regions are too small; it says what each one needs at least.
    UnsupportedModuleError
        If something cannot be emitted; it is named.
    """
    prepared = plan_export(model, training, options, on_progress, on_plan)
    check_samples(prepared, on_progress)
    return prepared


def check_samples(prepared: PreparedExport, on_progress: OnProgress) -> None:
    """Check that functions over single samples compute what a batch computes, where there are any.

    Raises
    ------
    UnsupportedModelError
        If they do not; the message says by how much.
    """
    if not _has_samples(prepared.options.entries):
        return
    on_progress("comparing single samples with a batch")
    model, training, single = prepared.model, prepared.training, prepared.single
    recipe = prepared.options.recipe
    if single is not None and recipe is not None:
        recipe = replace(recipe, optimizer=SGD(), groups=())
        trained = [name for name, role in training.roles.items() if role is Role.PARAMETER]
        single = build_single_samples(with_batch_size(model, 1), recipe, trained)
        training = build_step_by_recipe(model, recipe, trainable=trained)
    check_single_samples(prepared.evaluated, training, prepared.trial, single)


def plan_export(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    on_progress: OnProgress,
    on_plan: OnPlan = lambda _: None,
) -> PreparedExport:
    """The same plans without that comparison, which runs the model."""
    machine = machine_of(options)
    if options.backend is not Backend.VM:
        _check_names(machine, model, training, options)
    storage, entries = options.storage, options.entries
    stored = stored_step(training, options)
    maker = _Maker(options, machine, model, training, storage, on_progress)
    keep_all_bytes: int | None = None
    functions: dict[Entry, PlannedFunction] = {}
    if Entry.TRAIN_STEP in entries:
        on_progress("planning the training step")
        planned = plan_training(
            stored, machine, options.optimize, options.plan, options.wishes, on_progress
        )
        on_plan(planned.function.plan)
        functions[Entry.TRAIN_STEP] = planned.function
        layout, keep_all_bytes = planned.layout, planned.keep_all_bytes
    else:
        layout = lay_out_state(maker.state_without_step(stored), machine)
    return maker.finished(stored, functions, layout, keep_all_bytes)


@dataclass(frozen=True)
class _Maker:
    """Plans what is planned beside the training step."""

    options: ExportOptions
    machine: Machine
    model: ForwardModel
    training: TrainingStep
    storage: ShortStorage | None
    on_progress: OnProgress

    def state_without_step(self, stored: TrainingStep) -> dict[str, Array]:
        """The state of a package that has no training step."""
        roles = stored.roles
        kept = {
            name: value
            for name, value in stored.initial_state.items()
            if roles[name] in self.machine.state_roles
        }
        if Entry.APPLY in self.options.entries:
            return kept
        wanted = (Role.PARAMETER, Role.STATISTIC)
        return {name: value for name, value in kept.items() if roles[name] in wanted}

    def finished(
        self,
        stored: TrainingStep,
        functions: Mapping[Entry, PlannedFunction],
        layout: StateLayout,
        keep_all_bytes: int | None,
    ) -> PreparedExport:
        """All entry points beside those that are planned."""
        options, made = self.options, dict(functions)
        single = None
        if Entry.ACCUMULATE in options.entries:
            single = self._single_samples(with_batch_size(self.model, 1))
            layout = with_sums(layout, self._zero_sums(single), self.machine)
        for entry in options.entries:
            if entry in made:
                continue
            self.on_progress(f"planning {entry.value}")
            taken = [f.program.interface.arena_bytes for f in made.values()]
            taken_bytes = {n: max((t[n] for t in taken), default=0) for n in layout.state_end_bytes}
            made[entry] = self._shared(entry, single, layout, taken_bytes)
        return PreparedExport(
            options,
            self.machine,
            self.model,
            self.training,
            stored,
            {entry: made[entry] for entry in options.entries},
            layout,
            keep_all_bytes,
            single,
        )

    def _single_samples(self, sample: ForwardModel) -> SingleSamples:
        if self.storage is not None:
            raise ExportError(
                "gradients of single samples are added up in float32: give no --float16 or --bfloat16"
                " with accumulate"
            )
        if self.options.recipe is None or self.options.recipe.micro_batches > 1:
            raise ExportError(
                "accumulate needs a step made of one loss, one optimizer and one batch"
            )
        trained = [name for name, role in self.training.roles.items() if role is Role.PARAMETER]
        return build_single_samples(sample, self.options.recipe, trained)

    def _zero_sums(self, single: SingleSamples) -> dict[str, Array]:
        state = self.training.initial_state
        return {name: np.zeros_like(state[param]) for param, name in single.sums.items()}

    def _shared(
        self,
        entry: Entry,
        single: SingleSamples | None,
        layout: StateLayout,
        taken_bytes: Mapping[str, int],
    ) -> PlannedFunction:
        options, machine = self.options, self.machine
        if entry in (Entry.EVAL, Entry.INFER):
            model = options.evaluated or self.model
            model = model if entry is Entry.EVAL else with_batch_size(model, 1)
            given = (model, layout, machine, options.optimize, options.plan)
            return plan_evaluation(*given, self.storage, taken_bytes, f"{entry.value}_")
        assert single is not None
        mod = single.accumulate if entry is Entry.ACCUMULATE else single.apply
        values = {**self.model.state, **single.constants, **self.training.initial_state}
        function = SharedFunction(mod, entry.value, values, f"{entry.value}_")
        return plan_shared(function, layout, machine, options.optimize, options.plan, taken_bytes)


def _check_names(
    machine: Machine, model: ForwardModel, training: TrainingStep, options: ExportOptions
) -> None:
    evaluated = options.evaluated or model
    inputs = evaluated.main.params[: len(evaluated.input_names)]
    results = (*training.result_names, *result_names(len(outputs_of(evaluated.main))))
    names = (*training.batch_names, *(param.name for param in inputs), *results)
    regions = [device.name for device in machine.platform.devices]
    check_region_names(regions, names, options.entries)


def _has_samples(entries: tuple[Entry, ...]) -> bool:
    return any(entry.takes_one_sample for entry in entries)


def prepare_planned(
    model: ForwardModel, training: TrainingStep, planned: PlannedStep, options: ExportOptions
) -> PreparedExport:
    """Give a planned training step kernels for the target, and plan the evaluation beside it.

    Parameters
    ----------
    options
        Their regions, plan and wishes are for the evaluation only; the devices of the plan are
        the regions of the training step.

    Raises
    ------
    BudgetExceededError
        If the scratch memory of a kernel does not fit the budgets of the plan.
    InvalidPlatformError
        If the target is unknown.
    """
    target, platform = embedded_target(options.target), planned.plan.problem.platform
    machine = Machine(target, platform, {}, code_target(target, options.backend))
    _check_names(machine, model, training, options)
    train = plan_as_planned(training, machine, options.optimize, planned)
    made = _Maker(options, machine, model, training, None, lambda _: None)
    functions = {Entry.TRAIN_STEP: train.function}
    prepared = made.finished(training, functions, train.layout, train.keep_all_bytes)
    check_samples(prepared, made.on_progress)
    return prepared
