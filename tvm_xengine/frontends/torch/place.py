"""Where in a module a node of an exported program comes from."""

from __future__ import annotations

from pathlib import Path, PurePath

import torch
from torch import fx

from tvm_xengine.frontends.place import Place, source_line

_PYTORCH = Path(torch.__file__).parent
"""Frames of files below it are PyTorch's own; the user's line is the one that led there."""


def place_of(node: fx.Node) -> Place:
    """The innermost module and the innermost line of the user's code."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return Place(stack[-1][0] if stack else "", line_of(node.meta.get("stack_trace") or ""))


def line_of(stack_trace: str) -> str:
    """``net.py:12``: the innermost line outside of PyTorch; empty where there is none."""
    return source_line(stack_trace, _is_of_pytorch)


def _is_of_pytorch(path: PurePath) -> bool:
    return path.is_relative_to(_PYTORCH)
