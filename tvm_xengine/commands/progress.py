"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from tvm_xengine.kernels.store.kernel_store import OnProgress


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[[str], OnProgress]]:
    """Bars, each of which appears with the first progress that is reported to it."""
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:

        def track(title: str) -> OnProgress:
            tasks: list[TaskID] = []

            def advance(done: int, total: int, _name: str) -> None:
                if not tasks:
                    tasks.append(progress.add_task(title))
                progress.update(tasks[0], completed=done, total=total)

            return advance

        yield track
