"""Numbers that say what a library computes in a kernel, whose code does not show it."""

from __future__ import annotations

import math

from tvm_xengine.cost_models.machine import Machine
from tvm_xengine.libraries.library_call import LibraryCall, OptionValue

_KINDS = ("convolution", "conv", "linear", "matmul", "softmax", "norm", "pool")
_WORDS = (
    *_KINDS,
    *("data", "weight", "forward", "backward", "gradient"),
    *("batch", "avg", "adaptive", "inference", "add"),
)
"""Parts of the names of operations."""

_SHAPES = 3
_RANK = 4
_FLOPS_PER_LANE_AND_CYCLE = 4.0


def library_features(call: LibraryCall | None, flops: float) -> dict[str, float]:
    """The operation, its shapes and options; zeros where all of a kernel is generated."""
    shapes = () if call is None else (*call.shapes[:2], call.shapes[-1])
    values = {
        "is_library": float(call is not None),
        "log_library_flops": _log(flops),
        "library_threads": 0.0 if call is None else float(call.threads),
        "library_bias": float(call is not None and call.bias),
        "library_relu": float(call is not None and call.relu),
        "library_residual": float(call is not None and call.residual),
        "library_options": 0.0 if call is None else _sum_of_options(call),
    }
    words = frozenset() if call is None else frozenset(call.operation.split("_"))
    values |= {f"library_{word}": float(word in words) for word in _WORDS}
    values["library_elementwise"] = float(call is not None and words.isdisjoint(_KINDS))
    for number in range(_SHAPES):
        shape = shapes[number] if number < len(shapes) else ()
        values[f"log_library_size{number}"] = _log(math.prod(shape)) if shape else 0.0
        for axis in range(_RANK):
            extent = shape[axis] if axis < len(shape) else 0
            values[f"log_library_extent{number}_{axis}x"] = _log(extent)
    return values


def library_cycles(call: LibraryCall | None, flops: float, machine: Machine) -> float:
    """Cycles at the peak of one core; at least some for setting out."""
    if call is None:
        return 0.0
    return max(1.0, flops / (_FLOPS_PER_LANE_AND_CYCLE * max(1, machine.vector_bytes // 4)))


def _sum_of_options(call: LibraryCall) -> float:
    """Strides, dilations, paddings and groups tell calls of equal shapes apart."""
    return float(sum(_number(value) * (1 + place) for place, (_, value) in enumerate(call.options)))


def _number(value: OptionValue) -> float:
    if isinstance(value, tuple):
        return sum(_number(part) for part in value)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _log(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))
