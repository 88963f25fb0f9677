"""A file of JSON objects, one a line, that is only ever appended to."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

_logger = logging.getLogger(__name__)

Row = TypeVar("Row")


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
        """What `parse` makes of each line; lines that it or JSON cannot read are skipped, and said so."""
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        self._ends_in_newline = not text or text.endswith("\n")
        for number, line in enumerate(text.splitlines(), start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"expected a JSON object, found {type(row).__name__}")
                yield parse(row)
            except KeyError as error:
                _logger.warning("%s:%d is skipped: it has no field %s", self.path, number, error)
            except (ValueError, TypeError) as error:
                _logger.warning("%s:%d is skipped: %s", self.path, number, error)

    def append(self, row: Mapping[str, object]) -> None:
        """Write one more line."""
        line = json.dumps(row) + "\n"
        if not self._ends_in_newline:
            line = "\n" + line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._ends_in_newline = True
