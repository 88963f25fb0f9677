"""The look of every table with a header, narrow enough for a terminal of 80 columns."""

from __future__ import annotations

from rich import box
from rich.table import Table


def framed(title: str | None = None) -> Table:
    """An empty table: a line below its header, and two spaces between columns."""
    return Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )


def add_number_columns(table: Table, *names: str) -> None:
    """Columns of numbers, which never break."""
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
