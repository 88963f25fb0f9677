"""``tvm-xengine export``: the training step as plain C for a small machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.entries import Entry, chosen_entries
from tvm_xengine.aot.export import ExportReport, write_package
from tvm_xengine.aot.layers.choose import LayerChoice
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.layout import layout_called
from tvm_xengine.aot.plan.alternatives import Alternative, alternatives
from tvm_xengine.aot.plan.instructions import step_instructions
from tvm_xengine.aot.plan.kernels import Backend, Optimize
from tvm_xengine.aot.prepare import prepare_export
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.aot.vm_library.export import LibraryReport, write_library
from tvm_xengine.commands import app
from tvm_xengine.commands.run.export.asked import (
    check_library,
    library_memory,
    platform_of,
    regions_of,
    storage_of,
    training_asked_for,
    wishes_of,
)
from tvm_xengine.commands.run.export.shown import package_document, show_library, show_package
from tvm_xengine.commands.run.export.train_budget import (
    check_train_budget,
    choice_document,
    show_choice,
    train_budget,
)
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import (
    loss_named,
)
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.errors import ExportError
from tvm_xengine.files.write_directory import check_free
from tvm_xengine.model.training import Training
from tvm_xengine.planning.plan import Plan
from tvm_xengine.processes.tools import how_it_ended
from tvm_xengine.scheduling.schedule import read_schedule, write_schedule
from tvm_xengine.session.layers.train_budget import choose_trained
from tvm_xengine.solvers.result import StopReason


def run_export(model: str, options: app.ExportOptions) -> None:
    """Plan for the regions, write the package, and on demand run its self-test."""
    terminal = Terminal(options.output, (options.schedule.save_schedule,))
    wanted = options.target
    target, is_library = embedded_target(wanted.target), wanted.format == "tvm"
    given = options.schedule.schedule
    schedule = None if given is None else read_schedule(given)
    check_free(wanted.output, force=wanted.force)
    entries = chosen_entries(tuple(wanted.entry))
    layout_called(wanted.layout, has_objects=wanted.backend == "llvm")
    if is_library:
        check_library(options, entries)
    platform = platform_of(options.regions)
    regions = (
        library_memory(wanted, options.regions)
        if is_library
        else regions_of(options.regions, platform)
    )
    if wanted.check:
        target.find_compiler()
    check_train_budget(options)
    training = training_asked_for(model, options)
    settings = ExportOptions(
        target=wanted.target,
        regions=regions,
        backend=Backend.VM if is_library else Backend(wanted.backend),
        optimize=Optimize(wanted.optimize),
        plan=planner_options(options.solver, options.step.model.seed),
        learning_rate=training.known_recipe.optimizer.lr,
        platform=platform and platform.with_budgets({r.name: r.size_bytes for r in regions}),
        storage=storage_of(wanted),
        wishes=wishes_of(options, training, schedule),
        entries=entries,
        recipe=training.known_recipe,
        layout=wanted.layout,
        name=wanted.name,
    )
    terminal.note(loss_named(training, options.step))
    prepared, choice = _prepared(training, settings, options, terminal)
    if options.step.frozen.frozen == "int8":
        for note in prepared.model.notes:
            terminal.note(note)
    write = write_library if is_library else write_package
    with terminal.reporting() as reporter:
        report = write(prepared, wanted.output, force=wanted.force, on_progress=reporter.status)
    if options.schedule.save_schedule is not None:
        with terminal.writing():
            write_schedule(report.schedule, options.schedule.save_schedule)
    if isinstance(report, LibraryReport):
        terminal.write({**show_library(report, terminal), **choice_document(choice)})
        return
    compared = _alternatives(report, terminal)
    show_package(report, terminal, compared)
    if wanted.check:
        _check(report, terminal)
    terminal.write(
        {**package_document(report, compared, is_checked=wanted.check), **choice_document(choice)}
    )


def _prepared(
    training: Training, settings: ExportOptions, options: app.ExportOptions, terminal: Terminal
) -> tuple[PreparedExport, LayerChoice | None]:
    """The functions of the package, planned, and the choice of layers if there is one."""
    with terminal.reporting() as reporter:
        model = training.source.training
        if options.layers.train_scores is None:
            keep = partial(_keep_interrupted, options.schedule.save_schedule, terminal)
            return prepare_export(model, training.step, settings, reporter.status, keep), None
        budget = train_budget(training, options, reporter)
        choice = choose_trained(training, budget, settings, reporter.status)
    show_choice(choice, terminal)
    if choice.is_interrupted:
        raise KeyboardInterrupt
    return choice.prepared, choice


def _keep_interrupted(path: Path | None, terminal: Terminal, plan: Plan) -> None:
    """Write the schedule of a search that was interrupted, and end the command: it has seconds left."""
    if plan.result.stopped_by is not StopReason.INTERRUPTED:
        return
    if path is None:
        terminal.note(
            "no package is written; with --save-schedule FILE an interrupt keeps the best schedule so far"
        )
    else:
        write_schedule(plan.schedule, path)
        gap = plan.result.gap
        far = "" if gap is None else f", {gap:.1%} from the optimum at most,"
        terminal.note(
            f"no package is written; the best schedule so far{far} is in {path}:"
            f" --schedule {path} exports it"
        )
    raise KeyboardInterrupt


def _alternatives(report: ExportReport, terminal: Terminal) -> tuple[Alternative, ...]:
    """Other schedules of the step; none where the package has no step."""
    if Entry.TRAIN_STEP not in report.functions:
        return ()
    function, package = report.leading, report.package
    counted = partial(
        step_instructions,
        function.lowered,
        target=package.target,
        has_dma=bool(package.channels),
    )
    with terminal.reporting() as reporter:
        reporter.status("comparing with other schedules")
        return alternatives(function.plan, counted, function.slices)


def _check(report: ExportReport, terminal: Terminal) -> None:
    directory, package = report.directory, report.package
    with TemporaryDirectory() as folder:
        program = Path(folder) / f"{package.name}_selftest"
        build_program(directory, package, selftest_build(directory, package), program)
        done = run_program(program, package.target)
    if done.returncode:
        raise ExportError(
            f"the self-test of {directory} failed: {how_it_ended(done)}; the first lines of its source"
            " say what a code means"
        )
    terminal.note(f"self-test passed: {len(report.expected.losses)} steps on {package.target.name}")
