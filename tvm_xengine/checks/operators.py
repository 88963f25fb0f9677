"""Refusals of operators: which ones, where they stand, and what can be done."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tvm_xengine.checks.names import some

TORCH_ADVICE = (
    "replace them in the model by operators of docs/operators/torch.md, or add converters as"
    " CONTRIBUTING.md says"
)
TYPES_ADVICE = (
    "PyTorch refuses that, too, when it runs the module: give inputs and parameters of one type"
)
ONNX_ADVICE = (
    "replace them by operators of docs/operators/onnx.md and export again, or add converters as"
    " CONTRIBUTING.md says"
)
NODE_ADVICE = (
    "mend the graph there, or replace the operator by one of docs/operators/onnx.md, and export"
    " again"
)
GRADIENT_ADVICE = (
    "replace them in the model, freeze the parameters in front of them, or add gradients as"
    " CONTRIBUTING.md says"
)


_OPERATOR = re.compile(r'ir\.Op\(span=None.*?name="([\w.]+)".*?support_level=\d+\)')
"""How TVM writes an operator of Relax in its messages."""


def first_line(error: Exception) -> str:
    """The first line of an error, which names TVM's operators as a user would."""
    lines = str(error).strip().splitlines()
    return _OPERATOR.sub(r"\1", lines[0]) if lines else type(error).__name__


def located(operators: Iterable[tuple[str, str]]) -> str:
    """Operators with their layers, each pair once, for a message."""
    return some(dict.fromkeys(f"{operator} (in {layer})" for operator, layer in operators))


def with_advice(reason: str, advice: str) -> str:
    """A reason followed by what to do, which comes after a semicolon, unless it says so itself."""
    return reason if ";" in reason else f"{reason.rstrip('.')}; {advice}"
