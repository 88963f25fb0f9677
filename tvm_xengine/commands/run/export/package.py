"""``tvm-xengine export``: the training step as plain C for a small machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from tvm_xengine import api
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.entries import USUAL, Entry, chosen_entries
from tvm_xengine.aot.export import ExportReport, write_package
from tvm_xengine.aot.layers.choose import LayerChoice
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.layout import CMAKE, layout_called
from tvm_xengine.aot.plan.alternatives import Alternative, alternatives
from tvm_xengine.aot.plan.instructions import step_instructions
from tvm_xengine.aot.plan.kernels import Backend, Optimize
from tvm_xengine.aot.plan.plan_step import Wishes
from tvm_xengine.aot.plan.regions import FLASH, Region, parse_regions, platform_regions
from tvm_xengine.aot.prepare import prepare_export
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.aot.vm_library.export import LibraryReport, linker_of, write_library
from tvm_xengine.commands import app
from tvm_xengine.commands.arguments.export_options import RegionOptions, TargetOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.export.train_budget import (
    check_train_budget,
    choice_document,
    show_choice,
    train_budget,
)
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import (
    loaded,
    loss_named,
    plain_training,
    training_from,
)
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lean.short_storage import ShortStorage
from tvm_xengine.errors import ExportError, InvalidPlatformError
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.files.write_directory import check_free
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.model.training import Training
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import platform_path, read_platform
from tvm_xengine.scheduling.schedule import Schedule, read_schedule, write_schedule
from tvm_xengine.session.layers.train_budget import choose_trained
from tvm_xengine.solvers.result import Objective, StopReason
from tvm_xengine.training.typed_labels import TypedLabels

_MEANING = {
    Objective.COST: "time",
    Objective.MAKESPAN: "time",
    Objective.ENERGY: "energy",
}

DEFAULT_REGION = "sram"


def run_export(model: str, options: app.ExportOptions) -> None:
    """Plan for the regions, write the package, and on demand run its self-test."""
    terminal, wanted = Terminal(options.output), options.target
    target, is_library = embedded_target(wanted.target), wanted.format == "tvm"
    given = options.schedule.schedule
    schedule = None if given is None else read_schedule(given)
    check_free(wanted.output, force=wanted.force)
    entries = chosen_entries(tuple(wanted.entry))
    layout_called(wanted.layout, has_objects=wanted.backend == "llvm")
    if is_library:
        _check_library(options, entries)
    platform = _platform(options.regions)
    regions = (
        _library_memory(wanted, options.regions)
        if is_library
        else _regions(options.regions, platform)
    )
    if wanted.check:
        target.find_compiler()
    check_train_budget(options)
    training = _training(model, options)
    wishes = _wishes(options, training, schedule)
    terminal.note(loss_named(training, options.step))
    settings = ExportOptions(
        target=wanted.target,
        regions=regions,
        backend=Backend.VM if is_library else Backend(wanted.backend),
        optimize=Optimize(wanted.optimize),
        plan=planner_options(options.solver, options.step.model.seed),
        learning_rate=training.known_recipe.optimizer.lr,
        platform=platform and platform.with_budgets({r.name: r.size_bytes for r in regions}),
        storage=_storage(wanted),
        wishes=wishes,
        entries=entries,
        recipe=training.known_recipe,
        layout=wanted.layout,
    )
    prepared, choice = _prepared(training, settings, options, terminal)
    if options.step.frozen.frozen == "int8":
        for note in prepared.model.notes:
            terminal.note(note)
    write = write_library if is_library else write_package
    with terminal.reporting() as reporter:
        report = write(prepared, wanted.output, force=wanted.force, on_progress=reporter.status)
    if options.schedule.save_schedule is not None:
        write_schedule(report.schedule, options.schedule.save_schedule)
    if isinstance(report, LibraryReport):
        terminal.write({**_print_library(report, terminal), **choice_document(choice)})
        return
    has_step = Entry.TRAIN_STEP in report.functions
    with terminal.reporting() as reporter:
        reporter.status("comparing with other schedules")
        compared = _alternatives(report) if has_step else ()
    _print(report, terminal, compared)
    if wanted.check:
        _check(report, terminal)
    terminal.write(
        {**_document(report, compared, is_checked=wanted.check), **choice_document(choice)}
    )


def _check_library(options: app.ExportOptions, entries: tuple[Entry, ...]) -> None:
    """Refuse what a library for TVM's virtual machine does not have."""
    wanted = options.target
    if entries != USUAL:
        raise UsageError("--format tvm has train_step and eval; it takes no --entry")
    if wanted.layout != CMAKE.name:
        raise UsageError("--format tvm is a library of its own; it takes no --layout")
    if planner_options(options.solver, 0).objective is Objective.MAKESPAN:
        raise UsageError(
            "--format tvm runs one call or copy after another, so that a step ends after the sum of all"
            " times: take --objective cost"
        )
    linker_of(wanted.target)


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


def _training(model: str, options: app.ExportOptions) -> Training:
    """The training step; patterns of --train-only name what is trained, as --train does."""
    patterns = (*options.step.parameters.train, *options.regions.train_only)
    step = replace(options.step, parameters=replace(options.step.parameters, train=patterns))
    source = loaded(model, step.model)
    if options.target.eval_mode:
        source = replace(source, training=in_evaluation_mode(source.training))
    chooses = options.layers.train_scores is not None  # what is frozen is not known yet
    made = plain_training if chooses else training_from
    training = made(source, step, optimizer="sgd")
    changes: dict[str, object] = {}
    if options.target.label_type != "int64":
        loss = training.known_recipe.loss
        changes["loss"] = TypedLabels(loss, options.target.label_type)
    if Optimize(options.target.optimize) is Optimize.SIZE:
        changes["residuals_apart"] = True
    if options.target.rounding != "nearest":
        changes["draws_in_updates"] = True
    return api.with_recipe(training, seed=step.model.seed, **changes) if changes else training


def _wishes(options: app.ExportOptions, training: Training, schedule: Schedule | None) -> Wishes:
    """The constraints that options give, or the schedule itself."""
    wanted = options.constraints
    constraints = ConstraintPatterns(
        pin=tuple(wanted.pin),
        keep=wanted.keep,
        recompute=wanted.recompute,
        model_names={role.variable: role.names for role in training.roles},
    )
    return Wishes(constraints, schedule, str(options.schedule.schedule))


def _storage(wanted: TargetOptions) -> ShortStorage | None:
    """What `--float16` or `--bfloat16` says."""
    by_type = {"float16": wanted.float16, "bfloat16": wanted.bfloat16}
    chosen = [(dtype, what) for dtype, what in by_type.items() if what != "none"]
    if len(chosen) > 1:
        raise UsageError("give --float16 or --bfloat16, not both")
    if wanted.rounding != "nearest" and "all" not in by_type.values():
        raise UsageError(
            f"--rounding {wanted.rounding} is for parameters that are stored short: give --float16 all"
        )
    if not chosen:
        return None
    ((dtype, what),) = chosen
    return ShortStorage(parameters=what == "all", dtype=dtype, rounding=wanted.rounding)


def _library_memory(wanted: TargetOptions, regions: RegionOptions) -> tuple[Region, ...]:
    """Memory of a library for TVM's virtual machine."""
    if regions.regions or regions.platform or wanted.check or _storage(wanted):
        raise InvalidPlatformError(
            "--format tvm has one memory: it takes --arena-bytes, and no --regions, --platform,"
            " --float16, --bfloat16 or --check"
        )
    if regions.arena_bytes is None:
        raise InvalidPlatformError("say how much memory there is, e.g. --arena-bytes 64MiB")
    return (Region("memory", regions.arena_bytes),)


def _print_library(report: LibraryReport, terminal: Terminal) -> dict[str, object]:
    """What is shown of a library, and the keys of its JSON report."""
    library = report.library
    terminal.note(
        f"{library.name} for TVM's virtual machine on {library.target}: arena {library.arena_bytes}"
        f" bytes, of these state {library.state_bytes}; keep-all takes"
        f" {report.keep_all_bytes}; written to {report.directory}"
    )
    return {
        "name": library.name,
        "target": library.target,
        "arena_bytes": library.arena_bytes,
        "state_bytes": library.state_bytes,
        "keep_all_bytes": report.keep_all_bytes,
        "directory": str(report.directory),
    }


def _document(
    report: ExportReport, compared: Sequence[Alternative], *, is_checked: bool
) -> dict[str, object]:
    """The keys of the JSON report."""
    package, plan = report.package, report.leading.plan
    code = report.code
    return {
        "name": package.name,
        "target": package.target.name,
        "directory": str(report.directory),
        "regions": {
            name: {
                "bytes": size,
                "state_bytes": package.kept_bytes[name],
                "budget_bytes": package.budget_bytes[name],
            }
            for name, size in package.regions.items()
        },
        "entries": {
            entry.value: dict(program.interface.arena_bytes)
            for entry, program in package.functions.items()
        },
        "slices": {entry.value: planned.slices for entry, planned in report.functions.items()},
        "lean_kernels": {entry.value: f.lean_kernels for entry, f in report.functions.items()},
        "tiled_kernels": {entry.value: f.tiled_kernels for entry, f in report.functions.items()},
        "status": plan.result.status.value,
        "gap": plan.result.gap,
        "recomputed_ops": plan.recomputed_ops,
        "transfers": plan.schedule.transfers,
        "keep_all_bytes": report.keep_all_bytes,
        "compared": [asdict(one) for one in compared],
        "code_bytes": None if code is None else code.text_bytes,
        "stack_bytes": None if code is None else code.stack_bytes,
        "self_test_passed": True if is_checked else None,
    }


def _platform(options: RegionOptions) -> Platform | None:
    path = options.platform
    return None if path is None else read_platform(platform_path(Path(path)))


def _regions(wanted: RegionOptions, platform: Platform | None) -> tuple[Region, ...]:
    """What `--regions`, `--platform` and `--arena-bytes` say together."""
    if platform is not None:
        if wanted.regions is not None:
            raise InvalidPlatformError("give --regions or --platform, not both")
        regions = platform_regions(platform)
    elif wanted.regions is not None:
        regions = parse_regions(wanted.regions)
    elif wanted.arena_bytes is not None:
        return (Region(DEFAULT_REGION, wanted.arena_bytes),)
    else:
        raise InvalidPlatformError(
            "say how much memory there is: --arena-bytes 192KiB, or --regions sram=192KiB,psram=4MiB"
        )
    if wanted.arena_bytes is None:
        return regions
    first = next(position for position, r in enumerate(regions) if r.name != FLASH)
    size = min(regions[first].size_bytes, wanted.arena_bytes)
    return (*regions[:first], replace(regions[first], size_bytes=size), *regions[first + 1 :])


def _alternatives(report: ExportReport) -> tuple[Alternative, ...]:
    function, package = report.leading, report.package
    counted = partial(
        step_instructions,
        function.lowered,
        target=package.target,
        has_dma=bool(package.channels),
    )
    return alternatives(function.plan, counted, function.slices)


def _compared(compared: Sequence[Alternative]) -> Table:
    """What recomputation, copies and regions cost beside other ways to run the step."""
    table = framed("a training step, as estimated")
    table.add_column("", overflow="fold")
    has_energy = any(one.energy_uj for one in compared)
    energy_title = ["uJ"] * has_energy
    add_number_columns(table, "bytes", "us", "instructions", *energy_title, "ops again", "copies")
    for one in compared:
        size = " + ".join(f"{size}" for size in one.arena_bytes.values() if size)
        energy = [f"{one.energy_uj:.6g}"] * has_energy
        again, copies = f"{one.recomputed_ops}", f"{one.transfers}"
        counted = f"{one.instructions:.3g}"
        table.add_row(one.name, size, f"{one.step_us:.0f}", counted, *energy, again, copies)
    return table


def _print(report: ExportReport, terminal: Terminal, compared: Sequence[Alternative]) -> None:
    package, plan = report.package, report.leading.plan
    table = framed(f"{package.name} for {package.target.name}")
    table.add_column("region", overflow="fold")
    add_number_columns(table, "bytes", "of these state", "budget")
    for name, size in package.regions.items():
        budget = package.budget_bytes[name]
        table.add_row(name, f"{size}", f"{package.kept_bytes[name]}", f"{budget}")
    terminal.show(table)
    if compared:
        terminal.show(_compared(compared))
    schedule = plan.schedule
    for entry, program in package.functions.items():
        arena = ", ".join(f"{r} {n}" for r, n in program.interface.arena_bytes.items() if n)
        function = report.functions[entry]
        slices, lean, tiled = function.slices, function.lean_kernels, function.tiled_kernels
        divided = f", in {slices} slices of the batch" if slices > 1 else ""
        leaner = f", {lean} kernels in less scratch memory" if lean else ""
        in_tiles = f", {tiled} kernels in tiles" if tiled else ""
        terminal.note(f"{entry.value}: {arena} bytes{divided}{leaner}{in_tiles}")
    if plan.simulation.energy_uj:
        terminal.note(f"estimated energy of a step: {plan.simulation.energy_uj:.6g} uJ")
    kept = (
        "" if report.keep_all_bytes is None else f"; keep-all takes {report.keep_all_bytes} bytes"
    )
    meaning = _MEANING[plan.result.objective]
    proven = (
        f"gap {plan.result.gap:.1%} of estimated {meaning}"
        if plan.result.gap is not None
        else f"nothing is proven of its {meaning}"
    )
    terminal.note(
        f"{plan.result.status.value}, {proven};"
        f" {plan.recomputed_ops} ops recomputed, {schedule.transfers} copies between regions{kept}"
    )
    if package.storage_error is not None:
        terminal.note(
            f"short storage changes a loss of the self-test by at most {package.storage_error:.1e}"
            " (of one plus its size)"
        )
    if report.code is not None:
        stack = "" if report.code.stack_bytes is None else f", stack {report.code.stack_bytes}"
        terminal.note(f"code {report.code.text_bytes} bytes{stack}")
    terminal.note(f"written to {report.directory}")


def _check(report: ExportReport, terminal: Terminal) -> None:
    directory, package = report.directory, report.package
    with TemporaryDirectory() as folder:
        program = Path(folder) / f"{package.name}_selftest"
        build_program(directory, package, selftest_build(directory, package), program)
        done = run_program(program, package.target)
    if done.returncode:
        raise ExportError(
            f"the self-test of {directory} failed with code {done.returncode}; its first lines say"
            f" what that means. {done.stderr.strip()}"
        )
    terminal.note(f"self-test passed: {len(report.expected.losses)} steps on {package.target.name}")
