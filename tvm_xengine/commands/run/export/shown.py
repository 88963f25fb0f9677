"""What is shown of an exported package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.plan.alternatives import Alternative
from tvm_xengine.aot.vm_library.export import LibraryReport
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.solvers.result import Objective

_MEANING = {
    Objective.COST: "time",
    Objective.MAKESPAN: "time",
    Objective.ENERGY: "energy",
}


def show_library(report: LibraryReport, terminal: Terminal) -> dict[str, object]:
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


def package_document(
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


def comparison(compared: Sequence[Alternative]) -> Table:
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


def show_package(report: ExportReport, terminal: Terminal, compared: Sequence[Alternative]) -> None:
    package, plan = report.package, report.leading.plan
    table = framed(f"{package.name} for {package.target.name}")
    table.add_column("region", overflow="fold")
    add_number_columns(table, "bytes", "of these state", "budget")
    for name, size in package.regions.items():
        budget = package.budget_bytes[name]
        table.add_row(name, f"{size}", f"{package.kept_bytes[name]}", f"{budget}")
    terminal.show(table)
    if compared:
        terminal.show(comparison(compared))
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
