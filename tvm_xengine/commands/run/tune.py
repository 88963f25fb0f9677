"""``tvm-xengine tune``: search for faster loops of the kernels that are generated."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine import api
from tvm_xengine.commands.app import TuneOptions
from tvm_xengine.commands.run.steps import platform_of, training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.costing.costs import costs_on_boards, measured_costs
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.scheduling.platform import generated_only
from tvm_xengine.tuning.bench import BenchHere, BenchOnBoards
from tvm_xengine.tuning.tune_step import TunedKernel, tune_step


def run_tune(model: str, options: TuneOptions) -> None:
    """Tune the kernels that take most of the step, and keep what was found."""
    terminal = Terminal(options.output)
    tuned = TunedSchedules(options.database)
    training = training_of(model, options.step)
    platform = platform_of(options.platform)
    bench = BenchOnBoards(options.rpc) if options.rpc else BenchHere()
    with terminal.reporting() as reporter:
        given = generated_only(platform) if options.rpc else platform
        lowered = api.lower(training, given, progress=reporter, cache=options.cache)
        stores = lowered.stores
        costs = (
            costs_on_boards(stores.measurements, options.rpc, reporter)
            if options.rpc
            else measured_costs(stores.measurements, store=stores.kernels, reporter=reporter)
        )
        reporter.note("loading the search takes a minute")
        done = tune_step(
            lowered.step,
            costs,
            tuned,
            options.trials,
            seed=options.step.model.seed,
            on_kernel=lambda kernel: terminal.note(_sentence(kernel)),
            bench=bench,
        )
    _print_report(terminal, done, options.database)
    terminal.write(_document(done))


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


def _print_report(terminal: Terminal, done: list[TunedKernel], folder: Path) -> None:
    table = framed(f"tuned kernels, kept in {folder}")
    for title in ("kernel", "device"):
        table.add_column(title, overflow="fold")
    add_number_columns(table, "calls", "rules us", "tuned us", "ratio")
    table.add_column("from", overflow="fold")
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
    if not done:
        terminal.note("no kernel was looked at, because the trials are too few; raise --trials")
        return
    terminal.show(table)
    saved_us = sum(k.calls * (k.found.rule_us - k.found.tuned_us) for k in done if k.found.trace)
    terminal.note(
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
                "machine": kernel.found.machine,
            }
            for kernel in done
        ]
    }
