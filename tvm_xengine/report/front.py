"""Time against budget: as a table, as JSON and as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tvm_xengine.errors import MissingPackageError, XEngineError
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.files.atomic_write import check_writable, write_bytes_atomically
from tvm_xengine.planning.pareto import ParetoPoint
from tvm_xengine.scheduling.sizes import format_bytes

_BUDGET_WIDTH = 24
"""Columns of 80 that are left for a device and its budget beside the numbers of a large network."""
_MARGIN_RATIO = 0.05
"""A plot goes so much below the lowest bound and above the highest value, which leaves room for words."""


@dataclass(frozen=True)
class FrontPoint:
    """One budget and the best schedule found for it; unit of value and bound as `objective`.

    Where the whole batch has no schedule, that of the step in `slices` of it.
    """

    ratio: float
    budgets: Mapping[str, int]
    objective: str
    status: str
    value: float | None
    bound: float
    gap: float | None
    recomputed_ops: int | None
    transfers: int | None
    slices: int

    @classmethod
    def of(cls, ratio: float, point: ParetoPoint) -> FrontPoint:
        """The numbers of a solved point."""
        result = point.result
        schedule = result.schedule
        return cls(
            ratio=ratio,
            budgets=dict(point.budgets),
            objective=result.objective.value,
            status=result.status.value,
            value=result.value,
            bound=result.bound,
            gap=result.gap,
            recomputed_ops=None if schedule is None else len(schedule.repeats(point.graph)),
            transfers=None if schedule is None else schedule.transfers,
            slices=point.slices,
        )


def print_front(console: Console, model: str, front: Sequence[FrontPoint]) -> None:
    """A row for each budget."""
    objective = front[0].objective
    unit = "uJ" if objective == "energy" else "us"
    table = framed(f"{model}: {objective} ({unit}) against budget")
    add_number_columns(table, "ratio")
    budgets = [[f"{n} {format_bytes(size)}" for n, size in p.budgets.items()] for p in front]
    longest = max(len(line) for lines in budgets for line in lines)
    table.add_column("budgets", overflow="fold", min_width=min(longest, _BUDGET_WIDTH))
    add_number_columns(table, objective, "bound", "gap", "recomputed", "transfers")
    for point, lines in zip(front, budgets, strict=True):
        sizes = "\n".join(lines)
        if point.value is None:
            table.add_row(f"{point.ratio:g}", sizes, point.status, "", "", "", "")
            continue
        gap = "" if point.gap is None else f"{100 * point.gap:.2f} %"
        table.add_row(
            f"{point.ratio:g}",
            sizes,
            f"{point.value:.1f}",
            f"{point.bound:.1f}",
            gap,
            str(point.recomputed_ops),
            str(point.transfers),
        )
    console.print(table)


def front_document(model: str, front: Sequence[FrontPoint]) -> dict[str, object]:
    """The keys of the JSON file."""
    return {"model": model, "points": [asdict(point) for point in front]}


def check_plot(path: Path) -> None:
    """Refuse a plot that cannot be drawn, before the front is computed.

    Raises
    ------
    XEngineError
        If matplotlib is not installed or cannot write this kind of file.
    OSError
        If the file cannot be written.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "--plot needs matplotlib: pip install 'tvm-xengine[plot]'"
        ) from error
    known = FigureCanvasBase.get_supported_filetypes()
    if _format_of(path) not in known:
        raise XEngineError(
            f"cannot draw {path}: expected a name that ends in one of"
            f" {', '.join(f'.{each}' for each in sorted(known))}"
        )
    check_writable(path)


def _format_of(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def plot_front(model: str, front: Sequence[FrontPoint], path: Path) -> None:
    """Draw value and bound over the budget ratio in a file that `check_plot` has taken."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure

    solved = [(point, point.value) for point in front if point.value is not None]
    unit = "uJ" if front[0].objective == "energy" else "us"
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    ratios = [point.ratio for point, _ in solved]
    axes.plot(ratios, [value for _, value in solved], "o-", label="best schedule found")
    axes.plot(ratios, [point.bound for point, _ in solved], "_", ms=14, label="proven lower bound")
    is_cut = any(point.slices > 1 for point, _ in solved)
    slices = ", and slices of the batch" if is_cut else ""
    axes.set_xlabel(f"budget ratio (1: keep all){slices}")
    axes.set_xticks(
        ratios,
        [f"{point.ratio:g}" + (f"\n{point.slices}" if is_cut else "") for point, _ in solved],
    )
    axes.set_ylabel(f"{front[0].objective} of the step [{unit}]")
    axes.set_title(model)
    lowest = min((point.bound for point, _ in solved), default=0.0)
    axes.set_ylim(
        (1 - _MARGIN_RATIO) * lowest,
        (1 + _MARGIN_RATIO) * max((value for _, value in solved), default=1.0),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format=_format_of(path))
    write_bytes_atomically(path, drawn.getvalue())
