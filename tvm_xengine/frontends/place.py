"""The place in a model's source that a variable is computed at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath, PureWindowsPath

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Place:
    """Where a variable is computed; module and line are empty where unknown.

    Attributes
    ----------
    module
        Path of the module whose ``forward`` computes it, ``encoder.layers.0``.
    line
        ``net.py:12``.
    call
        Which call of the module computes it, from 1.
    """

    module: str = ""
    line: str = ""
    call: int = 1


def source_line(stack_trace: str, is_library: Callable[[PurePath], bool]) -> str:
    """``net.py:12``: the innermost line outside of the library's own files; empty where there is none."""
    for file, line in reversed(_FRAME.findall(stack_trace)):
        path = (PureWindowsPath if "\\" in file else PurePath)(file)
        if not is_library(path):
            return f"{path.name}:{line}"
    return ""
