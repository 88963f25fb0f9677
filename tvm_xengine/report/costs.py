"""Tables of cost models and datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tvm_xengine.cost_models.judging.metrics import Metrics
from tvm_xengine.cost_models.prediction.abstain import UNKNOWN, is_unknown
from tvm_xengine.explain.words.framed import framed
from tvm_xengine.scheduling.problem import OpCost

NOISE = "measured again"
"""Name of the row that says how far two measurements lie apart."""


_MODELS_BESIDE = 4
"""Models that fit side by side in 80 columns."""


def print_metrics(console: Console, title: str, rows: Mapping[str, Metrics]) -> None:
    """One column for each model; errors in per cent of the measured time."""
    names = list(rows)
    for start in range(0, len(names), _MODELS_BESIDE):
        some = names[start : start + _MODELS_BESIDE]
        table = framed(title)
        table.add_column("")
        for name in some:
            table.add_column(name, justify="right", overflow="fold")
        for figure, shown in _FIGURES.items():
            table.add_row(figure, *(shown(rows[name]) for name in some))
        console.print(table)


def print_families(console: Console, title: str, families: Mapping[str, Metrics]) -> None:
    """One row for each network family, with the error of the time of all its kernels together."""
    table = framed(title)
    table.add_column("family", overflow="fold")
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
    table = framed(f"{title}; times in us")
    table.add_column("kernel", overflow="fold")
    for column in ("device", "by"):
        table.add_column(column, overflow="fold")
    for column in ("calls", "call", "from", "to"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("cost is")
    ranked = sorted(costs, key=lambda row: -row[3] * row[4].compute_us)
    for name, device, computed_by, calls, cost in ranked:
        table.add_row(
            name,
            device,
            computed_by,
            str(calls),
            *(f"{time_us:.4g}" for time_us in (cost.compute_us, cost.lo_us, cost.hi_us)),
            UNKNOWN if is_unknown(cost) else cost.source.value,
        )
    console.print(table)


def print_facts(console: Console, title: str, facts: Mapping[str, object]) -> None:
    """Name and value, a line each."""
    table = Table(
        title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
    )
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


_FIGURES: dict[str, Callable[[Metrics], str]] = {
    "kernels": lambda metrics: str(metrics.kernels),
    "median error": lambda metrics: _percent(metrics.median_error_ratio),
    "mean error": lambda metrics: _percent(metrics.mean_error_ratio),
    "within 10": lambda metrics: _percent(metrics.within_10_ratio),
    "within 25": lambda metrics: _percent(metrics.within_25_ratio),
    "> 20 us within 25": lambda metrics: _percent(metrics.long_within_25_ratio),
    "Kendall": lambda metrics: f"{metrics.kendall:.3f}",
    "time-weighted error": lambda metrics: _percent(metrics.weighted_error_ratio),
    "error of net totals": lambda metrics: _percent(metrics.median_total_ratio),
    "in interval": lambda metrics: _percent(metrics.coverage_ratio),
}
"""Rows of a table of models."""
