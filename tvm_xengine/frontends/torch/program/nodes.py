"""What a node of an exported program is called, and where in a module it comes from."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

import torch
from torch import fx

from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.place import Place, source_line

_PYTORCH = Path(torch.__file__).parent
"""Frames of files below it are PyTorch's own; the user's line is the one that led there."""
_CALLED_AGAIN = re.compile(r"@(\d+)$")
"""How torch.export tells further calls of a module apart: ``L__self___block@1`` is the second one."""


def layer_of(node: fx.Node) -> str:
    """The path of the module that the node came from, with the op where that says more."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__module__
    if path and kind.startswith("torch.nn.modules"):
        return identifier(path)
    return identifier(f"{path}_{op_name(node).split('.')[0]}")


def op_name(node: fx.Node) -> str:
    """The operator with its overload, such as ``add.Tensor``."""
    return str(getattr(node.target, "__name__", node.target))


def place_of(node: fx.Node) -> Place:
    """The innermost module, which call of it, and the innermost line of the user's code."""
    stack = list((node.meta.get("nn_module_stack") or {}).items())
    line = line_of(node.meta.get("stack_trace") or "")
    if not stack:
        return Place("", line)
    key, (module, _) = stack[-1]
    again = _CALLED_AGAIN.search(key)
    return Place(module, line, 1 + int(again[1]) if again else 1)


def line_of(stack_trace: str) -> str:
    """``net.py:12``: the innermost line outside of PyTorch; empty where there is none."""
    return source_line(stack_trace, _is_of_pytorch)


def _is_of_pytorch(path: PurePath) -> bool:
    return path.is_relative_to(_PYTORCH)
