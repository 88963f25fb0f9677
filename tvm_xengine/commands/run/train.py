"""``tvm-xengine train``: plan a training step, train with it, report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from tvm_xengine import api
from tvm_xengine.commands.app import TrainOptions
from tvm_xengine.commands.arguments.training_options import LoopOptions, StateOptions
from tvm_xengine.commands.arguments.usage import UsageError, refusing_values
from tvm_xengine.commands.run.learning import Curve, showing
from tvm_xengine.commands.run.plan import problem_of, save_plan
from tvm_xengine.commands.run.processes.ranks import for_this_rank
from tvm_xengine.commands.run.steps import loss_named, solver_arguments, training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.files.atomic_write import check_writable
from tvm_xengine.model.lr_schedules import Schedule, beyond, named_schedule
from tvm_xengine.model.training import Training
from tvm_xengine.planning.plan_again import Replanned
from tvm_xengine.report.summary import RunSummary, as_document, with_measurements
from tvm_xengine.report.tables import print_report
from tvm_xengine.runtime.comparison import median_but_first
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.schedule import read_schedule
from tvm_xengine.session.loop.fit import fit
from tvm_xengine.session.loop.speed import slowdown_ratio
from tvm_xengine.session.loop.validation import check_validation, evaluate
from tvm_xengine.session.loop.workload import CheckpointOptions, FitProgress, FitResult
from tvm_xengine.session.plans.given_schedule import plan_of_schedule
from tvm_xengine.session.plans.plan_of_ranks import plan_of_ranks
from tvm_xengine.session.step import Step
from tvm_xengine.session.training_data import training_data
from tvm_xengine.state.state_file import check_state_path, write_state

_USUAL_STEPS = 600
"""A minute for LeNet on a laptop, and enough to see that a network learns."""
_MOST_EPOCHS = 2**31 - 1
"""Stands for as many epochs as the steps need."""


@dataclass(frozen=True)
class Wanted:
    """What ``train`` is to do with a model, before it is planned."""

    options: TrainOptions
    training: Training
    data: Data
    steps: int
    lr_schedule: Schedule | None
    saving: CheckpointOptions | None

    @property
    def epochs(self) -> int:
        """Passes over the data, at most."""
        epochs = self.options.loop.epochs
        return _MOST_EPOCHS if epochs is None else epochs

    @property
    def max_steps(self) -> int | None:
        """Steps after which training ends, whatever the data; None leaves that to the epochs."""
        loop = self.options.loop
        return loop.steps or (None if loop.epochs else self.steps)


def run_train(model: str, options: TrainOptions) -> None:
    """Plan, train and report; the JSON report holds the same numbers as the table."""
    _check_replan(options)
    has_times = is_timed(options)
    options = for_this_rank(options)
    terminal = Terminal(options.plan.output)
    arguments = solver_arguments(options.plan.solver, options.plan.step.model.seed)
    if options.loop.schedule is not None and options.plan.division.replicas is not None:
        raise UsageError(
            "--schedule runs a schedule of the whole batch, and --replicas divides that; leave out one."
            " What runs where in a step in shares, and where its state lies, is in a plan file:"
            " --save-plan FILE keeps it, and StepPlan.load reads it"
        )
    given = None if options.loop.schedule is None else read_schedule(options.loop.schedule)
    wanted = wanted_of(model, options, terminal)
    with terminal.reporting() as reporter:
        problem = problem_of(wanted.training, options.plan, reporter)
        planned = (
            api.plan(problem, **arguments, replicas=options.plan.division.replicas)
            if given is None
            else plan_of_ranks(
                problem.lowered,
                lambda: plan_of_schedule(problem, given, str(options.loop.schedule)),
            )
        )
        save_plan(planned, replace(options.plan.save, report=None))
        step = api.build(problem.lowered, planned, lr_schedule=wanted.lr_schedule)
    if not options.loop.no_compare:
        step.compare_with_keep_all()
    curve = Curve()
    timed = step.timed() if has_times else nullcontext(None)
    with showing(terminal, wanted.steps) as show, timed as marks:
        result = fit(
            step,
            wanted.data,
            epochs=wanted.epochs,
            max_steps=wanted.max_steps,
            checkpoint=wanted.saving,
            on_progress=following(curve, step, show),
            guard=not options.loop.no_guard,
            replan=options.loop.replan,
            seed=options.plan.step.model.seed,
        )
    if options.loop.replan:
        terminal.note(_replanned(result.replanned))
        save_plan(step.plan, replace(options.plan.save, report=None), terminal.writing)
    run = summary_of(step, wanted.data, result, curve)
    if not options.loop.no_guard:
        check_validation(run.validation, step.steps_taken)
    terminal.write(finished(terminal, step, wanted, run, marks))


def wanted_of(model: str, options: TrainOptions, terminal: Terminal) -> Wanted:
    """The training step, its data and the length of its training; files can be written where asked."""
    saving = _checkpoint(options.state)
    if options.state.save is not None:
        check_state_path(options.state.save)
    written = (*options.plan.save.paths, options.state.save, options.state.trace)
    for path in (*written, None if saving is None else saving.path):
        if path is not None:
            check_writable(path)
    step, seed = options.plan.step, options.plan.step.model.seed
    training = training_of(model, step)
    terminal.note(loss_named(training, step))
    data = training_data(training, options.data.data, options.data.validation, seed=seed)
    if not options.loop.no_guard:
        data.check_finite()
    steps = _steps(options.loop, training, data)
    schedule = _lr_schedule(options.loop, training, steps)
    if said := beyond(options.loop.lr_schedule or "", steps):
        terminal.note(said)
    return Wanted(options, training, data, steps, schedule, saving)


def following(
    curve: Curve, step: Step, show: Callable[[FitProgress], None]
) -> Callable[[FitProgress], None]:
    """Note the progress of a step, and show it."""

    def on_progress(progress: FitProgress) -> None:
        curve.add(progress, step.last_step_us)
        show(progress)

    return on_progress


def finished(
    terminal: Terminal, step: Step, wanted: Wanted, run: RunSummary, marks: Marks | None
) -> dict[str, object]:
    """Write what is kept of a training, and print its report, which is returned for JSON."""
    state, saved = wanted.options.state, wanted.options.plan.save
    measured_us = None if marks is None else marks.intervals_us
    if state.trace is not None:
        with terminal.writing():
            step.plan.write_trace(state.trace, measured_us)
    if saved.report is not None:
        with terminal.writing(), terminal.reporting() as reporter:
            reporter.status("writing the report")
            step.plan.write_report(saved.report, measured_us=measured_us)
            reporter.status("")
    document = _report(terminal, step, run)
    if state.save is not None:
        trained = step.state_dict()
        with terminal.writing():
            if step.writes_files:
                write_state(trained, state.save)
            terminal.note(f"trained tensors written to {state.save}")
    return document


def _checkpoint(options: StateOptions) -> CheckpointOptions | None:
    path = options.checkpoint or options.resume
    if path is None:
        if options.checkpoint_every is not None:
            raise UsageError("--checkpoint-every needs a file to write: give --checkpoint FILE")
        return None
    if options.resume is not None and not options.resume.exists():
        raise InvalidStateError(f"there is no checkpoint {options.resume}")
    resume = False if options.resume is None else options.resume
    return CheckpointOptions(path, options.checkpoint_every, resume)


def is_timed(options: TrainOptions) -> bool:
    """Whether the times of calls are written at the end, by this process or by another one."""
    return any((options.state.trace, options.plan.save.report)) and not options.loop.replan


def _check_replan(options: TrainOptions) -> None:
    """Refuse what contradicts planning again."""
    if not options.loop.replan:
        return
    if options.loop.schedule is not None:
        raise UsageError("--schedule runs a given schedule, --replan looks for another; give one")
    if options.state.trace is not None:
        raise UsageError(
            "--replan changes the program that --trace would record; plan again with --replan and"
            " --save-schedule FILE, then trace a run with --schedule FILE"
        )


def _replanned(found: Replanned | None) -> str:
    """What measuring in place has changed, in a sentence."""
    if found is None:
        return "not planned again: the run was too short to measure its steps"
    became = "another schedule" if found.changed else "the schedule stays"
    return (
        f"planned again: {format_us(found.predicted_us)} predicted, {format_us(found.measured_us)}"
        f" measured in place; {became}, {format_us(found.replanned_us)} predicted now"
    )


def _steps(options: LoopOptions, training: Training, data: Data) -> int:
    """Steps in all, of whatever ends the training first."""
    batch = training.source.training.batch_size * training.known_recipe.micro_batches
    per_epoch = data.batches_per_epoch(batch)
    if options.epochs is None:
        return options.steps or _USUAL_STEPS
    return min(options.epochs * per_epoch, options.steps or options.epochs * per_epoch)


def _lr_schedule(options: LoopOptions, training: Training, steps: int) -> Schedule | None:
    if options.lr_schedule is None:
        return None
    with refusing_values():
        return named_schedule(options.lr_schedule, training.known_recipe.optimizer.lr, steps)


def summary_of(step: Step, data: Data, result: FitResult, curve: Curve) -> RunSummary:
    """What was seen; the validation is that of the state in which training ended."""
    comparison = step.comparison
    measuring = 0 if result.replanned is None else result.replanned.steps
    validation = evaluate(step, data) if data.validation else {}
    return RunSummary(
        steps=result.steps_taken,
        loss_first=result.losses[0] if result.losses else None,
        loss_last=result.losses[-1] if result.losses else None,
        accuracy=validation.get("accuracy"),
        validation=validation,
        losses=result.losses,
        replanned=result.replanned,
        step_us_measured=median_but_first(curve.step_us[measuring:] or curve.step_us),
        identical_to_keep_all=None if comparison is None else comparison.is_identical,
        max_rel_diff=None if comparison is None else comparison.max_rel_diff,
        slowdown_ratio=slowdown_ratio(step.plan, curve.sentinels_us[measuring:]),
    )


def _report(terminal: Terminal, step: Step, run: RunSummary) -> dict[str, object]:
    comparison = step.comparison
    plan = with_measurements(
        step.plan.summary,
        step.executable.measured_peak_bytes,
        None if comparison is None else comparison.median_reference_step_us,
    )
    print_report(terminal.console, plan, run)
    return as_document(plan, run)
