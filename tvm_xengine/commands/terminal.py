"""What a command shows: tables, progress and notes for people, and one JSON report for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_xengine.checks.printable import printable
from tvm_xengine.commands.arguments.options import OutputOptions
from tvm_xengine.files.atomic_write import check_writable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tvm_xengine.compiler.reporter import Reporter

STANDARD_OUTPUT = Path("-")
_LEAST_WIDTH = 80
"""Characters in a line of piped output, where the environment gives no width."""


class Terminal:
    """Standard output for people, or for the JSON report alone (``--json -``).

    Attributes
    ----------
    console
        Where tables go: standard output, or standard error where the report takes that.
    """

    def __init__(self, options: OutputOptions) -> None:
        from tvm_xengine.commands.printable_console import PrintableConsole

        if options.json not in (None, STANDARD_OUTPUT):
            check_writable(options.json)
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

    def write(self, document: Mapping[str, object]) -> None:
        """Write the JSON report where one was asked for."""
        if self._json is None:
            return
        if self._json == STANDARD_OUTPUT:
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
            sys.stdout.flush()
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
