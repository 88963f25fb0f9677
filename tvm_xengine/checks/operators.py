"""Refusals of operators: which ones, where they stand, and what can be done."""

from __future__ import annotations

from collections.abc import Iterable

from tvm_xengine.checks.names import some

TORCH_ADVICE = (
    "replace them in the model by operators of docs/operators/torch.md, or add converters as"
    " CONTRIBUTING.md says"
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


def located(operators: Iterable[tuple[str, str]]) -> str:
    """Operators with their layers, each pair once, for a message."""
    return some(dict.fromkeys(f"{operator} (in {layer})" for operator, layer in operators))


def with_advice(reason: str, advice: str) -> str:
    """A reason followed by what to do, which comes after a semicolon, unless it says so itself."""
    return reason if ";" in reason else f"{reason.rstrip('.')}; {advice}"
