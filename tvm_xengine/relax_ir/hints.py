"""The hints in a Relax function: devices of values, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

HINT_ON_DEVICE = "relax.hint_on_device"
START_CHECKPOINT = "relax.grad.start_checkpoint"
END_CHECKPOINT = "relax.grad.end_checkpoint"

HINTS = (HINT_ON_DEVICE, START_CHECKPOINT, END_CHECKPOINT)
"""Operators that return what they are given."""

_PLACES = "tvm_xengine.places"


@dataclass(frozen=True)
class HintedDevice:
    """A device as TVM numbers it.

    Attributes
    ----------
    device_type
        Of DLPack: 1 is a processor, 2 a GPU of CUDA.
    index
        Among the devices of that type.
    """

    device_type: int
    index: int


def hint_of(value: relax.Expr) -> str | None:
    """The operator of a call that is a hint; None for anything else."""
    name = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else None
    return name if name in HINTS else None


def read_places(func: relax.Function) -> Mapping[str, HintedDevice]:
    """The device of each call whose place a hint has given, by the name of its variable."""
    rows = func.attrs.get(_PLACES, {}) if func.attrs else {}
    return {str(name): HintedDevice(int(row[0]), int(row[1])) for name, row in rows.items()}


def write_places(func: relax.Function, places: Mapping[str, HintedDevice]) -> relax.Function:
    """`func` with an attribute that states `places`."""
    rows = {name: [place.device_type, place.index] for name, place in places.items()}
    return func.with_attr(_PLACES, rows)
