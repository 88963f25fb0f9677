"""The line of a module's source that a node of an exported program comes from."""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PureWindowsPath

import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_PYTORCH = Path(torch.__file__).parent
"""Frames of files below it are PyTorch's own; the user's line is the one that led there."""


def source_line(stack_trace: str) -> str:
    """``net.py:12``: the innermost line outside of PyTorch; empty where there is none."""
    for file, line in reversed(_FRAME.findall(stack_trace)):
        path = (PureWindowsPath if "\\" in file else PurePath)(file)
        if not path.is_relative_to(_PYTORCH):
            return f"{path.name}:{line}"
    return ""
