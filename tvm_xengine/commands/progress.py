"""Progress on the console."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tvm_xengine.compiler.reporter import Reporter

if TYPE_CHECKING:
    from tvm_xengine.kernels.store.kernel_store import OnProgress


@contextmanager
def show_progress(console: Console) -> Iterator[ConsoleReporter]:
    """A reporter that shows what is being done on the last lines of the console."""
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        _DoneColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield ConsoleReporter(progress)


class ConsoleReporter(Reporter):
    """Shows a bar for each stage and a line for the status, and prints notes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._status: TaskID | None = None

    def stage(self, title: str) -> OnProgress:
        tasks: list[TaskID] = []

        def advance(done: int, total: int, _item: str) -> None:
            if not tasks:
                tasks.append(self._progress.add_task(title))
            self._progress.update(tasks[0], completed=done, total=total, visible=done < total)

        return advance

    def status(self, text: str) -> None:
        if self._status is not None and not text:
            self._progress.remove_task(self._status)
            self._status = None
        elif self._status is None and text:
            self._status = self._progress.add_task(text, total=None)
        elif self._status is not None:
            self._progress.update(self._status, description=text)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)


SILENCE_S = 10.0
"""Where nobody watches, a line this often is enough to see that a command goes on."""


@contextmanager
def show_lines(
    note: Callable[[str], None], say: Callable[[str], None], silence_s: float = SILENCE_S
) -> Iterator[Reporter]:
    """A reporter for output that is no terminal: notes, and now and then what is being done."""
    reporter, is_over = _Lines(note), threading.Event()

    def watch() -> None:
        while not is_over.wait(silence_s):
            if reporter.current:
                say(reporter.current)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield reporter
    finally:
        is_over.set()
        thread.join()


class _Lines(Reporter):
    """Hands notes on, and remembers what is being done."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.current = ""

    def stage(self, title: str) -> OnProgress:
        def advance(done: int, total: int, _item: str) -> None:
            self.current = f"{title}: {done} of {total}" if done < total else ""

        return advance

    def status(self, text: str) -> None:
        self.current = text

    def note(self, text: str) -> None:
        self._note(text)


class _DoneColumn(ProgressColumn):
    """How much is done of a stage whose total is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:.0f}/{task.total:.0f}")
