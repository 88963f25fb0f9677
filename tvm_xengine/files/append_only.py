"""A file of JSON objects, one a line, that is only ever appended to."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tvm_xengine.files.read_text import parse_json

_logger = logging.getLogger(__name__)

_MOST_SAID = 3
"""Lines that are skipped are named, until there are more."""

Row = TypeVar("Row")


class OldRowError(ValueError):
    """A row of an earlier format, which nothing is wrong with."""


class AppendOnlyFile:
    """Rows are on disk as soon as they are added; a killed process loses at most the one it wrote.

    Parameters
    ----------
    path
        The file; it and its folder are made by the first :meth:`append`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends_in_newline = True

    def read(self, parse: Callable[[dict[str, object]], Row]) -> Iterator[Row]:
        """What `parse` makes of each line.

        Lines that it or JSON cannot read are skipped; the first of them, and how many, are said.
        Of those for which it raises `OldRowError` only the number is.
        """
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        self._ends_in_newline = not text or text.endswith("\n")
        skipped = old = 0
        for number, line in enumerate(text.splitlines(), start=1):
            if not line:
                continue
            try:
                yield parse(_object(line))
            except OldRowError:
                old += 1
            except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
                skipped += 1
                if skipped <= _MOST_SAID:
                    reason = f"it has no field {error}" if isinstance(error, KeyError) else error
                    _logger.warning("%s:%d is skipped: %s", self.path, number, reason)
        if old:
            _logger.warning(
                "%s: %d lines of an earlier version are ignored; what they hold is made again",
                *(self.path, old),
            )
        if skipped > _MOST_SAID:
            _logger.warning("%s: %d lines are skipped in all", self.path, skipped)

    def append(self, row: Mapping[str, object]) -> None:
        """Write one more line."""
        line = json.dumps(row) + "\n"
        if not self._ends_in_newline:
            line = "\n" + line
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:  # a full disk is reported without a name
            raise type(error)(error.errno, error.strerror, str(self.path)) from error
        self._ends_in_newline = True


def _object(line: str) -> dict[str, object]:
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")
    return row
