"""Features of library calls, which the code of a kernel does not show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm_xengine.cost_models.features.hardware import Hardware
from tvm_xengine.cost_models.features.table import IS_LIBRARY, LIBRARY_VECTOR, STAGES
from tvm_xengine.kernels.library.call import LibraryCall, OptionValue
from tvm_xengine.kernels.library.product import product_of
from tvm_xengine.kernels.library.stages import Stage

_KINDS = ("convolution", "conv", "linear", "matmul", "softmax", "norm", "pool")
_WORDS = (
    *_KINDS,
    *("data", "weight", "forward", "backward", "gradient"),
    *("batch", "avg", "adaptive", "inference", "add"),
)
"""Parts of the names of operations."""

_CODES = (
    *("brg", "brgconv", "strided", "jit", "1x1", "dw", "simple"),
    *("ncsp", "nspc", "bnorm", "tbb"),
)
"""Parts of the names of oneDNN's implementations."""

_COPIES = ("blk", "uni", "other")
"""Codes that lay tensors out otherwise: of blocks, of any layout, and the rest."""

_VECTORS_BYTES = {"avx512": 64, "avx2": 32, "avx": 32, "sse41": 16}
"""Width of the registers that a name of oneDNN's code speaks of."""

_LANES = 16
"""Numbers in the widest vector."""

_SHAPES = 3
"""Tensors of a call that are described: two inputs and the output."""

_RANK = 4
"""Axes of each that are described: an image's."""

_FLOPS_PER_LANE_AND_CYCLE = 4.0
"""Two units for products that are added, two operations each, as in server processors."""


def library_features(
    call: LibraryCall | None, stages: Sequence[Stage], flops: float
) -> dict[str, float]:
    """The operation, its shapes and options, and the `stages` that the library runs for it.

    All are zero where all of a kernel is generated.
    """
    shapes = () if call is None else (*call.shapes[:2], call.shapes[-1])
    values = {
        IS_LIBRARY: float(call is not None),
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
    return values | _of_product(call) | _of_window(call) | _of_stages(stages)


def _of_product(call: LibraryCall | None) -> dict[str, float]:
    """Extents of the matrices that it multiplies, and what is left of the last vector."""
    product = None if call is None else product_of(call)
    batch, rows, columns, inner = (
        (0, 0, 0, 0)
        if product is None
        else (product.batch, product.rows, product.columns, product.inner)
    )
    return {
        "log_library_product_batch": _log(batch),
        "log_library_product_rows": _log(rows),
        "log_library_product_columns": _log(columns),
        "log_library_product_inner": _log(inner),
        "library_product_remainder": float(columns % _LANES),
        "library_product_inner_remainder": float(inner % _LANES),
    }


def _of_window(call: LibraryCall | None) -> dict[str, float]:
    option = {} if call is None else call.option
    window = option.get("pool_size")
    if call is not None and "conv" in call.operation:
        window = call.shapes[-1 if "weight" in call.operation else 1][2:]
    return {
        "library_window": _volume(window),
        "library_stride": _volume(option.get("strides")),
        "library_dilation": _volume(option.get("dilation")),
        "library_padding": _number(option.get("padding")),
        "log_library_groups": _log(_number(option.get("groups"))),
    }


def _of_stages(stages: Sequence[Stage]) -> dict[str, float]:
    """How many functions run; the code of the one that has most bytes; bytes that are copied."""
    working = [stage for stage in stages if not stage.is_copy]
    main = _main_stage(stages)
    words = frozenset() if main is None else _words(main)
    copied = dict.fromkeys(_COPIES, 0)
    for stage in stages:
        if stage.is_copy:
            kind = next((kind for kind in _COPIES if kind in _words(stage)), _COPIES[-1])
            copied[kind] += stage.tensors_bytes
    values = {
        f"log_{STAGES}s": _log(len(stages)),
        f"{STAGES}_copies": float(len(stages) - len(working)),
        f"log_{STAGES}_bytes": _log(sum(stage.tensors_bytes for stage in working)),
        LIBRARY_VECTOR: float(
            max((size for name, size in _VECTORS_BYTES.items() if name in words), default=0)
        ),
    }
    values |= {f"log_{STAGES}_copied_{kind}": _log(size) for kind, size in copied.items()}
    return values | {f"{STAGES}_code_{code}": float(code in words) for code in _CODES}


def _words(stage: Stage) -> frozenset[str]:
    return frozenset(stage.implementation.replace(":", "_").split("_"))


def library_cycles(
    call: LibraryCall | None, stages: Sequence[Stage], flops: float, hardware: Hardware
) -> float:
    """Cycles at the peak of one core, lanes without work included; at least some for setting out."""
    if call is None:
        return 0.0
    lanes = max(1, hardware.vector_bytes // 4)
    times = _times_for_full_lanes(call, stages, lanes)
    return max(1.0, times * flops / (_FLOPS_PER_LANE_AND_CYCLE * lanes))


def _times_for_full_lanes(call: LibraryCall, stages: Sequence[Stage], lanes: int) -> float:
    """How many times the operations of a product are done because vectors are not full.

    Products of matrices have vectors of columns, convolutions vectors of channels.
    """
    product = product_of(call)
    main = _main_stage(stages)
    if product is None or main is None:
        return 1.0
    words = _words(main)
    if "dw" in words:
        return 1.0
    extent = product.columns if "brg" in words else product.rows
    return math.ceil(extent / lanes) * lanes / extent


def _main_stage(stages: Sequence[Stage]) -> Stage | None:
    """The one that has most bytes, of those that do more than to copy."""
    working = [stage for stage in stages if not stage.is_copy]
    return max(working, key=lambda stage: stage.tensors_bytes, default=None)


def _sum_of_options(call: LibraryCall) -> float:
    """Strides, dilations, paddings and groups tell calls of equal shapes apart."""
    return float(sum(_number(value) * (1 + place) for place, (_, value) in enumerate(call.options)))


def _volume(value: OptionValue) -> float:
    return math.prod(map(_number, value)) if isinstance(value, tuple) else _number(value)


def _number(value: OptionValue) -> float:
    if isinstance(value, tuple):
        return sum(_number(part) for part in value)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _log(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))
