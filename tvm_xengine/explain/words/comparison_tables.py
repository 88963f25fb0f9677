"""A comparison of two plans as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tvm_xengine.explain.comparison import Change, Comparison
from tvm_xengine.explain.words.framed import framed
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes

_MOST_TOLD = 20
"""Rows of a list of changes: more than a screen of them is for the JSON report."""


def shown(comparison: Comparison) -> Iterator[RenderableType]:
    """The parts of a comparison, for a console of 80 columns or more."""
    yield _table("", [one for one in comparison.figures if one.before or one.after])
    for device, figures in comparison.devices.items():
        yield _table(device, figures)
    for sentence in comparison.problem:
        yield Text(f"The problems differ: {sentence}.")
    yield from _list("tensor", comparison.fates, "Every tensor is treated alike.")
    yield from _list("op", comparison.placements, "Every op runs where it did, and as often.")


def _list(what: str, changes: Sequence[Change], otherwise: str) -> Iterator[RenderableType]:
    if not changes:
        yield Text(otherwise)
        return
    yield _table(what, changes[:_MOST_TOLD])
    if (more := len(changes) - _MOST_TOLD) > 0:
        yield Text(f"{more} more; --json FILE has all of them.")


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = framed()
    has_numbers = any(_is_number(one) for one in changes)
    for column in (title, "first", "second", *(("change",) if has_numbers else ())):
        table.add_column(column, overflow="fold")
    for one in changes:
        name = one.what.removesuffix("_bytes").removesuffix("_us").removesuffix("_uj")
        name = name.replace("_", " ")
        table.add_row(
            name if _is_number(one) else one.what,
            _shown(one.what, one.before),
            _shown(one.what, one.after),
            *((_difference(one),) if has_numbers else ()),
        )
    return table


def _is_number(change: Change) -> bool:
    return not isinstance(change.before or change.after or 0, str)


def _shown(name: str, value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return "no limit" if value >= UNLIMITED_BYTES else format_bytes(int(value))
    if name.endswith("_us"):
        return format_us(value)
    return f"{value:.4g} uJ" if name.endswith("_uj") else f"{value:.6g}"


def _difference(change: Change) -> str:
    before, after = change.before, change.after
    if isinstance(before, str) or isinstance(after, str) or before is None or after is None:
        return ""
    if before == after:
        return "="
    if not before:
        return ""
    return f"{100 * (after - before) / before:+.2f} %"
