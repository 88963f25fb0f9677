"""Tables for people."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from tvm_xengine.cost_models.measure.sentinel import SLOWED_RATIO
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.report.summary import PlanSummary, RunSummary
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes
from tvm_xengine.solvers.result import Scope


def print_report(console: Console, plan: PlanSummary, run: RunSummary | None) -> None:
    """Print planned figures, with measured ones next to them."""
    console.print(_device_table(plan))
    console.print(_step_table(plan, run))
    if plan.message:
        console.print(f"[dim]{plan.message}[/dim]", highlight=False)


def _device_table(plan: PlanSummary) -> Table:
    batch = "" if plan.batch is None else f", batch {plan.batch}"
    table = framed(f"{plan.model}{batch}, {plan.graph_ops} ops")
    table.add_column("device", overflow="fold")
    add_number_columns(table, "budget", "planned arena", "measured peak", "ops", "busy")
    for device in plan.devices:
        table.add_row(
            device.name,
            "no limit"
            if device.budget_bytes == UNLIMITED_BYTES
            else format_bytes(device.budget_bytes),
            format_bytes(device.planned_arena_bytes),
            "-" if device.measured_peak_bytes is None else format_bytes(device.measured_peak_bytes),
            str(device.ops),
            format_us(device.busy_us),
        )
    return table


def _computed_by(plan: PlanSummary) -> str:
    """Where the kernels of each device come from."""
    return "; ".join(
        f"{device.name}: "
        + ", ".join(
            f"{n} {name}" for name, n in sorted(Counter(device.computed_by.values()).items())
        )
        for device in plan.devices
        if device.computed_by
    )


def _step_table(plan: PlanSummary, run: RunSummary | None) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    solved = f"solved for {plan.solve_s:.1f} s"
    if plan.is_by_work:
        solved = f"{plan.solve_s:.1f} units of work"
    table.add_row("status", f"{plan.status} ({plan.solver}, {solved})")
    unit = "uJ" if plan.objective == "energy" else "us"
    value = {
        "cost": plan.cost_us,
        "makespan": plan.makespan_us,
        "energy": plan.energy_uj,
    }[plan.objective]
    if plan.gap is None:
        table.add_row(plan.objective, f"{value:.1f} {unit}, nothing is proven of it")
    else:
        bound = f"bound {plan.bound_us:.1f} {unit}, gap {100 * plan.gap:.2f} %"
        table.add_row(plan.objective, f"{value:.1f} {unit}, {bound}")
        table.add_row("", f"the bound holds for {Scope(plan.scope).words}")
        if plan.order_gap is not None:
            gap = f"gap {100 * plan.order_gap:.2f} %"
            table.add_row("", f"{gap} for {Scope.GIVEN_ORDER.value}")
    table.add_row("recomputed ops", str(plan.recomputed_ops))
    table.add_row("transfers", str(plan.transfers))
    _add_times(table, plan, run)
    if run is not None:
        _add_run(table, run)
    return table


def _add_times(table: Table, plan: PlanSummary, run: RunSummary | None) -> None:
    measured = (
        "" if run is None or not run.losses else f", measured {format_us(run.step_us_measured)}"
    )
    table.add_row("step time", f"predicted {format_us(plan.step_us_predicted)}{measured}")
    sources = ", ".join(f"{count} {name}" for name, count in sorted(plan.cost_sources.items()))
    known = (
        ""
        if plan.measured_kernels is None
        else f"; {plan.measured_kernels} of {plan.all_kernels} kernels measured"
    )
    table.add_row(
        "",
        f"{format_us(plan.step_us_lo)} to {format_us(plan.step_us_hi)}; costs of computations:"
        f" {sources}{known}",
    )
    if run is not None and (slow := run.slowdown_ratio or 0.0) > SLOWED_RATIO:
        table.add_row(
            "", f"the processor was {slow:.2f} times slower than when kernels were measured"
        )
    if computed_by := _computed_by(plan):
        table.add_row("kernels", computed_by)
    if plan.keep_all is not None:
        keep = plan.keep_all
        kept = (
            ""
            if keep.step_us_measured is None
            else f", measured {format_us(keep.step_us_measured)}"
        )
        in_slices = f", in {plan.slices} slices, too" if (plan.slices or 1) > 1 else ""
        table.add_row(
            "keep all",
            f"predicted {format_us(keep.step_us_predicted)}{kept},"
            f" arena {format_bytes(keep.arena_bytes)} on {keep.device}{in_slices}",
        )


def _add_run(table: Table, run: RunSummary) -> None:
    if run.loss_first is not None:
        losses = f"{run.loss_first:.4f} to {run.loss_last:.4f}"
        table.add_row("loss", f"{losses} in {len(run.losses)} steps")
    else:
        table.add_row("loss", f"no step taken: the checkpoint has {run.steps} steps already")
    if "loss" in run.validation:
        table.add_row("validation loss", f"{run.validation['loss']:.4f}")
    if run.accuracy is not None:
        table.add_row("test accuracy", f"{100 * run.accuracy:.1f} %")
    if run.identical_to_keep_all is not None and run.max_rel_diff is not None:
        same = (
            "bit-identical"
            if run.identical_to_keep_all
            else f"largest relative difference {run.max_rel_diff:.2g}"
        )
        table.add_row("against keeping all", same)
