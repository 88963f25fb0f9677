"""The line of a module's source that a node of an exported program comes from."""

from __future__ import annotations

import re
from pathlib import PurePath, PureWindowsPath

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_LIBRARY = "torch"
"""Frames in folders of this name are PyTorch's own; the user's line is the one that led there."""


def source_line(stack_trace: str) -> str:
    """``net.py:12``: the innermost line outside of PyTorch; empty where there is none."""
    for path, line in reversed(_FRAME.findall(stack_trace)):
        parts = (PureWindowsPath if "\\" in path else PurePath)(path).parts
        if _LIBRARY not in parts[:-1]:
            return f"{parts[-1]}:{line}"
    return ""
