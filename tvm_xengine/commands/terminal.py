"""What a command shows: tables, progress and notes for people, and one JSON report for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_xengine.checks.printable import printable
from tvm_xengine.commands.arguments.options import OutputOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.failures import explained
from tvm_xengine.errors import XEngineError
from tvm_xengine.files.atomic_write import check_writable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tvm_xengine.compiler.reporter import Reporter

STANDARD_OUTPUT = Path("-")
_LEAST_WIDTH = 80
"""Characters in a line of piped output, where the environment gives no width."""


class Terminal:
    """Standard output for people, or for the JSON report alone (``--json -``).

    Parameters
    ----------
    written
        Other files that the command writes. Those that cannot be written are refused now, before the work.

    Attributes
    ----------
    console
        Where tables go: standard output, or standard error where the report takes that.
    """

    def __init__(self, options: OutputOptions, written: Iterable[Path | None] = ()) -> None:
        from tvm_xengine.commands.printable_console import PrintableConsole

        if options.json == STANDARD_OUTPUT and sys.stdout is None:
            raise UsageError("--json - writes to standard output, which is closed; name a file")
        report = None if options.json == STANDARD_OUTPUT else options.json
        for path in (report, *written):
            if path is not None:
                check_writable(path)
        self._failed: list[OSError] = []
        self._json = options.json
        logging.getLogger("tvm_xengine").setLevel(
            logging.ERROR if options.quiet else logging.NOTSET
        )
        self.console: Console = PrintableConsole(
            quiet=options.quiet, stderr=options.json == STANDARD_OUTPUT, highlight=False
        )

    def show(self, *parts: RenderableType) -> None:
        """Print tables or sentences."""
        for part in parts:
            self.console.print(part)

    def note(self, sentence: str) -> None:
        """Print a sentence, broken between words in a terminal, and in one line elsewhere."""
        self.console.print(sentence, markup=False, soft_wrap=not self.console.is_terminal)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let a file that cannot be written keep no other one from it; `write` raises what was wrong."""
        try:
            yield
        except OSError as error:
            self._failed.append(error)

    def write(self, document: Mapping[str, object]) -> None:
        """Write the JSON report where one was asked for, as the last output.

        Raises
        ------
        OSError
            If it or another output could not be written.
        XEngineError
            If several could not.
        """
        with self.writing():
            self._write(document)
        if len(self._failed) > 1:
            raise XEngineError("; ".join(filter(None, map(explained, self._failed))))
        if self._failed:
            raise self._failed[0]

    def _write(self, document: Mapping[str, object]) -> None:
        if self._json is None:
            return
        if self._json == STANDARD_OUTPUT:
            print(json.dumps(document, indent=2), flush=True)  # noqa: T201
            return
        from tvm_xengine.report.summary import write_json

        write_json(document, self._json)

    def _say(self, sentence: str) -> None:
        if not self.console.quiet:
            print(f"tvm-xengine: {printable(sentence)}", file=sys.stderr, flush=True)  # noqa: T201

    @contextmanager
    def reporting(self) -> Iterator[Reporter]:
        """A reporter that shows what is being done on the last lines of a terminal.

        Elsewhere, such as in a file, notes are written, and what takes long is said on standard error.
        """
        from tvm_xengine.commands.progress import show_lines, show_progress

        if not self.console.is_terminal:
            with show_lines(self.note, self._say) as lines:
                yield lines
            return
        with show_progress(self.console) as reporter:
            yield reporter
