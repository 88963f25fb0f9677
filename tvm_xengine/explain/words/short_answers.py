"""The short answers of a report: the peak, and why tensors are recomputed or copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_xengine.explain.explanation import TensorFinding
from tvm_xengine.explain.fates import COPIED_FROM, Fate
from tvm_xengine.explain.memory import TimePoint
from tvm_xengine.explain.names import joined
from tvm_xengine.explain.words.sentences import fate_in_words, reason_in_words
from tvm_xengine.scheduling.sizes import format_bytes

_MOST = 4
"""Categories and layers that stand in a sentence, the largest first."""


def peak_in_words(points: Sequence[TimePoint]) -> str:
    """What lies in memory at the highest of some time points, by category and by layer.

    And whether the budget binds there, or at which of the others it does.
    """
    point = points[0]
    layers = {name: size for name, size in point.layer_bytes.items() if name}
    other = next((one for one in points if one.binds), None)
    if point.binds:
        binds = (
            " The budget binds there: not everything that is dropped or elsewhere then would fit."
        )
    elif other is not None:
        binds = (
            " The budget does not bind there, but"
            f" during step {other.step} ({during_in_words(other)}): not everything that is dropped or"
            " elsewhere then would fit."
        )
    else:
        binds = (
            " The budget binds at none of the peaks: nothing that is elsewhere then is too large."
        )
    most = f" By layer: {_by_name(layers)}." if layers else ""
    return (
        f"{format_bytes(point.live_bytes)} during step {point.step} ({during_in_words(point)}):"
        f" {_listed(point.category_bytes)}.{most}{binds}"
    )


def during_in_words(point: TimePoint) -> str:
    """What runs at a time point, and of which layer and line."""
    return f"{point.during}, of {point.place}" if point.place else point.during


def treated_in_words(treated: Sequence[TensorFinding]) -> str:
    """How many tensors are recomputed and copied, and of what size."""
    parts = []
    for fate, verb in ((Fate.RECOMPUTED, "recomputed"), (Fate.MOVED, "copied")):
        sizes = [one.size_bytes for one in treated if one.fate.fate is fate]
        if sizes:
            tensors = "tensor is" if len(sizes) == 1 else "tensors are"
            parts.append(f"{len(sizes)} {tensors} {verb} ({format_bytes(sum(sizes))})")
    return f"{joined(parts)}."


def tensor_in_words(tensor: TensorFinding, unit: str) -> str:
    """What happens to a tensor and what keeping it would cost."""
    layer = f" of {tensor.layer}" if tensor.layer else ""
    layer += f" ({tensor.line})" if tensor.line else ""
    size = format_bytes(tensor.size_bytes)
    return f"{tensor.label}{layer} ({size}) is {fate_in_words(tensor.fate)}: {why_in_words(tensor, unit)}."


def why_in_words(tensor: TensorFinding, unit: str) -> str:
    """Why a tensor is treated as it is: what reads it elsewhere, and what else would cost."""
    reason = "" if tensor.alternatives is None else reason_in_words(tensor.alternatives, unit)
    stays = tensor.fate.stays
    read = (
        f"it is read there by {stay.last_use}"
        for stay in stays
        if stay.came_by.startswith(COPIED_FROM)
        and stay.device != stays[0].device
        and stay.last_use.endswith(f" on {stay.device}")
    )
    return "; ".join(filter(None, (next(read, ""), reason)))


def _by_name(sizes: Mapping[str, int]) -> str:
    shown = [f"{name} {format_bytes(size)}" for name, size in list(sizes.items())[:_MOST]]
    rest = sum(list(sizes.values())[_MOST:])
    return joined([*shown, f"others {format_bytes(rest)}"] if rest else shown)


def _listed(sizes: Mapping[str, int]) -> str:
    shown = [f"{format_bytes(size)} {name}" for name, size in list(sizes.items())[:_MOST]]
    rest = sum(list(sizes.values())[_MOST:])
    return joined([*shown, f"{format_bytes(rest)} of others"] if rest else shown)
