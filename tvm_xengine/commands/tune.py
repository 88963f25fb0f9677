"""``tvm-xengine tune``: search for faster loops of the kernels that are generated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import lower
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.costs import measured_costs
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.report.summary import write_json
from tvm_xengine.tuning.tune_step import TunedKernel, tune_step


def run_tune(request: Request, console: Console) -> None:
    """Tune the kernels that take most of the step, and keep what was found."""
    assert request.database is not None
    tuned = TunedSchedules(request.database)
    with show_progress(console) as reporter:
        step = lower(replace(request, database=None), reporter)
        stores = step.stores
        costs = measured_costs(stores.measurements, store=stores.kernels, reporter=reporter)
        reporter.note("loading the search takes a minute")
        done = tune_step(
            step.lowered,
            costs,
            tuned,
            request.trials,
            seed=request.plan.seed,
            on_kernel=lambda kernel: console.print(_sentence(kernel)),
        )
    _print_report(console, done, request.database)
    if request.output.json is not None:
        write_json(_document(done), request.output.json)


def _sentence(kernel: TunedKernel) -> str:
    found = kernel.found
    if not found.trace:
        return f"{kernel.name} on {kernel.device}: our rules' loops are the fastest known"
    return (
        f"{kernel.name} on {kernel.device}: {found.rule_us:.0f} us, now {found.tuned_us:.0f} us"
        f" ({_origin(kernel)})"
    )


def _origin(kernel: TunedKernel) -> str:
    if kernel.was_known:
        return "known"
    return "search" if kernel.found.origin == "search" else "taken over from a relative"


def _print_report(console: Console, done: list[TunedKernel], folder: Path) -> None:
    table = Table(title=f"tuned kernels, kept in {folder}")
    for title in ("kernel", "device", "calls", "rules us", "tuned us", "ratio", "from"):
        table.add_column(
            title, justify="left" if title in ("kernel", "device", "from") else "right"
        )
    for kernel in done:
        found = kernel.found
        if found.trace:
            table.add_row(
                kernel.name,
                kernel.device,
                str(kernel.calls),
                f"{found.rule_us:.1f}",
                f"{found.tuned_us:.1f}",
                f"{found.gain_ratio:.2f}",
                _origin(kernel),
            )
    console.print(table)
    saved_us = sum(k.calls * (k.found.rule_us - k.found.tuned_us) for k in done if k.found.trace)
    console.print(
        f"{len(done)} kernels looked at; a step that runs them all takes {saved_us:.0f} us less."
        f" Use them with --database {folder}"
    )


def _document(done: list[TunedKernel]) -> dict[str, object]:
    return {
        "kernels": [
            {
                "kernel": kernel.name,
                "device": kernel.device,
                "calls": kernel.calls,
                "rule_us": kernel.found.rule_us,
                "tuned_us": kernel.found.tuned_us,
                "trials": kernel.found.trials,
                "origin": kernel.found.origin,
                "was_known": kernel.was_known,
            }
            for kernel in done
        ]
    }
