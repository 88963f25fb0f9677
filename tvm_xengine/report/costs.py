"""Tables of cost models and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tvm_xengine.cost_models.models.metrics import Metrics
from tvm_xengine.report.tables import format_us
from tvm_xengine.scheduling.problem import OpCost

NOISE = "measured again"
"""Name of the row that says how far two measurements lie apart."""


def print_metrics(console: Console, title: str, rows: Mapping[str, Metrics]) -> None:
    """One row for each model; errors in per cent of the measured time."""
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for column in (
        *("kernels", "median", "mean", "within 10", "within 25", "> 20 us within 25"),
        *("Kendall", "time-weighted", "net total", "in interval"),
    ):
        table.add_column(column, justify="right")
    for name, metrics in rows.items():
        table.add_row(
            name,
            str(metrics.kernels),
            _percent(metrics.median_error_ratio),
            _percent(metrics.mean_error_ratio),
            _percent(metrics.within_10_ratio),
            _percent(metrics.within_25_ratio),
            _percent(metrics.long_within_25_ratio),
            f"{metrics.kendall:.3f}",
            _percent(metrics.weighted_error_ratio),
            _percent(metrics.median_total_ratio),
            _percent(metrics.coverage_ratio),
        )
    console.print(table)


def print_families(console: Console, title: str, families: Mapping[str, Metrics]) -> None:
    """One row for each network family, with the error of the time of all its kernels together."""
    table = Table(title=title, title_justify="left")
    table.add_column("family")
    for column in ("kernels", "median", "> 20 us within 25", "Kendall", "total", "in interval"):
        table.add_column(column, justify="right")
    for name, metrics in families.items():
        table.add_row(
            name,
            str(metrics.kernels),
            _percent(metrics.median_error_ratio),
            _percent(metrics.long_within_25_ratio),
            f"{metrics.kendall:.3f}",
            _percent(metrics.worst_total_ratio),
            _percent(metrics.coverage_ratio),
        )
    console.print(table)


def print_costs(
    console: Console, title: str, costs: Sequence[tuple[str, str, str, int, OpCost]]
) -> None:
    """Rows (kernel, device, where from, number of calls, cost of one), the most expensive first."""
    table = Table(title=title, title_justify="left")
    for column in ("kernel", "device", "computed by"):
        table.add_column(column)
    for column in ("calls", "one call", "from", "to", "cost is"):
        table.add_column(column, justify="right")
    ranked = sorted(costs, key=lambda row: -row[3] * row[4].compute_us)
    for name, device, computed_by, calls, cost in ranked:
        table.add_row(
            name,
            device,
            computed_by,
            str(calls),
            format_us(cost.compute_us),
            format_us(cost.lo_us),
            format_us(cost.hi_us),
            cost.source.value,
        )
    console.print(table)


def print_facts(console: Console, title: str, facts: Mapping[str, object]) -> None:
    """Name and value, a line each."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _text(value))
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _percent(ratio: float) -> str:
    return "-" if ratio != ratio else f"{100 * ratio:.1f}"
