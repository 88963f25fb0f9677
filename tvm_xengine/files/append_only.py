"""A file of JSON objects, one a line, that is only ever appended to."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tvm_xengine.files.named_errors import naming
from tvm_xengine.files.read_text import parse_json, read_bytes

_logger = logging.getLogger(__name__)

_MOST_SAID = 3
"""Lines that are skipped are named, until there are more."""

Row = TypeVar("Row")


class OldRowError(ValueError):
    """A valid row of an earlier format."""


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
        """The result of `parse` for each line.

        Unreadable lines are skipped; the log names the first of them and their number.
        Of those for which it raises `OldRowError` only the number is.
        """
        if not self.path.exists():
            return
        text = read_bytes(self.path).decode("utf-8", errors="replace")
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
            _logger.info(
                "%s: %d lines of an earlier version are ignored; their content is made again",
                *(self.path, old),
            )
        if skipped > _MOST_SAID:
            _logger.warning("%s: %d lines are skipped in all", self.path, skipped)

    def append(self, row: Mapping[str, object]) -> None:
        """Write one more line, whole or not at all.

        Raises
        ------
        OSError
            With the name of the file, also where the system does not give it (no space left).
        """
        line = json.dumps(row) + "\n"
        if not self._ends_in_newline:
            line = "\n" + line
        with naming(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                try:
                    _write_whole(file.fileno(), line.encode())
                except OSError:
                    is_empty = os.fstat(file.fileno()).st_size == 0
                    if is_empty:  # it was made for this row
                        self.path.unlink(missing_ok=True)
                    raise
        self._ends_in_newline = True


def _write_whole(file: int, content: bytes) -> None:
    """Append in one write, so that rows of two processes do not mix; undo an incomplete write."""
    written = os.write(file, content)
    start = os.lseek(file, 0, os.SEEK_CUR) - written
    try:
        while written < len(content):
            written += os.write(file, content[written:])
    except OSError:
        if os.fstat(file).st_size == start + written:  # no other process has gone on behind it
            os.ftruncate(file, start)
        raise


def _object(line: str) -> dict[str, object]:
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")
    return row
