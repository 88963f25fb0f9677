"""Convolutions and linear maps as their equivalent matrix products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tvm_xengine.kernels.library.call import LibraryCall


@dataclass(frozen=True)
class Product:
    """``batch`` products of a matrix (rows, inner) with one (inner, columns)."""

    batch: int
    rows: int
    columns: int
    inner: int


def product_of(call: LibraryCall) -> Product | None:
    """The product that a call computes, None where it is something else.

    Columns of a convolution are the pixels of its output, its inner sum goes over input channels
    and window; in its gradients they change places.
    """
    shapes = call.shapes
    match call.operation:
        case "convolution":
            return _convolution(call, output=shapes[-1], weight=shapes[1])
        case "conv_data_gradient":
            forward = _convolution(call, output=shapes[0], weight=shapes[1])
            return Product(forward.batch, forward.inner, forward.columns, forward.rows)
        case "conv_weight_gradient":
            forward = _convolution(call, output=shapes[1], weight=shapes[-1])
            return Product(forward.batch, forward.rows, forward.inner, forward.columns)
        case "linear":
            return Product(1, math.prod(shapes[0][:-1]), shapes[1][0], shapes[1][1])
        case "linear_data_gradient":
            return Product(1, math.prod(shapes[0][:-1]), shapes[1][1], shapes[1][0])
        case "linear_weight_gradient":
            rows, columns = shapes[-1]
            return Product(1, rows, columns, math.prod(shapes[0][:-1]))
        case "batch_matmul":
            return _matmul(call)
    return None


def _convolution(call: LibraryCall, *, output: tuple[int, ...], weight: tuple[int, ...]) -> Product:
    groups = call.number("groups")
    return Product(
        output[0] * groups, weight[0] // groups, math.prod(output[2:]), math.prod(weight[1:])
    )


def _matmul(call: LibraryCall) -> Product:
    left, right, output = call.shapes[0], call.shapes[1], call.shapes[-1]
    inner = left[-2] if call.option["transpose_left"] else left[-1]
    all_of_them = math.prod(np.broadcast_shapes(left[:-2], right[:-2]))
    *batches, rows, columns = output
    batch = math.prod(batches)
    # A batch that the output lacks is summed over.
    return Product(batch, rows, columns, inner * all_of_them // batch)
