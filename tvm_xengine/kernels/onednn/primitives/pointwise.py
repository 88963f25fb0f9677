"""Convolutions with a window of one pixel: matrix products over the channels.

oneDNN's own convolution of such tensors allocates memory when it runs, or wants their channels in
blocks, and copying them there and back takes longer than the convolution.
"""

from __future__ import annotations

import math

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveAttributes, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import ARG_DST, ARG_SRC, ARG_WEIGHTS, arg_added
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder

_FLOAT_BYTES = 4
"""A float32."""


def pointwise(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """y[n] = w x[n], for every example of the batch a matrix (channels, pixels)."""
    data, weight = call.shapes[0], call.shapes[1]
    return _batched(call, library, (1, library.plain((1, *weight[:2]))), (0, data))


def pointwise_data_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """dx[n] = w^T dy[n]."""
    gradient, weight = call.shapes[0], call.shapes[1]
    out_channels, channels = weight[:2]
    turned = library.plain((1, channels, out_channels), (channels * out_channels, 1, channels))
    return _batched(call, library, (1, turned), (0, gradient))


def pointwise_weight_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """dw = sum_n dy[n] x[n]^T, one product after the other."""
    data, gradient, weight = call.shapes
    batch, channels, pixels = _matrices(data)
    out_channels = gradient[1]
    left = library.plain((out_channels, pixels))
    right = library.plain((pixels, channels), (1, pixels))
    result = library.plain(weight[:2])
    first = _product(library, left, right, result, library.attributes())
    further = _product(library, left, right, result, library.attributes(adds=True))
    if first is None or further is None:
        return None
    builder = ProgramBuilder(library)
    for n in range(batch):
        arguments = {
            ARG_SRC: builder.part(1, n * out_channels * pixels * _FLOAT_BYTES, left),
            ARG_WEIGHTS: builder.part(0, n * channels * pixels * _FLOAT_BYTES, right),
        }
        builder.compute(further if n else first, arguments, (ARG_DST, 2, result, result))
    return builder.program()


def _batched(
    call: LibraryCall,
    library: OnednnLibrary,
    left: tuple[int, MemoryDesc],
    right: tuple[int, tuple[int, ...]],
) -> Program | None:
    """The product of one matrix with every image, and what is added to it.

    Operands come with the number of their parameter.
    """
    images = library.plain(_matrices(right[1]))
    shape = _matrices(call.shapes[-1])
    result = library.plain(shape)
    # oneDNN's own bias is one of the last axis.
    added = [(2, library.plain((1, shape[1], 1)))] if call.bias else []
    added += [(call.residual_input, result)] if call.residual else []
    attributes = library.attributes(added=[desc for _, desc in added])
    primitive = _product(library, left[1], images, result, attributes)
    if primitive is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_SRC: builder.part(left[0], 0, left[1]),
        ARG_WEIGHTS: builder.part(right[0], 0, images),
    }
    for k, (parameter, desc) in enumerate(added):
        arguments[arg_added(k)] = builder.part(parameter, 0, desc)
    builder.compute(primitive, arguments, (ARG_DST, len(call.shapes) - 1, result, result))
    return builder.program()


def _product(
    library: OnednnLibrary,
    left: MemoryDesc,
    right: MemoryDesc,
    result: MemoryDesc,
    attributes: PrimitiveAttributes,
) -> PrimitiveDesc | None:
    return library.describe_good("matmul", left, right, None, result, attributes=attributes)


def _matrices(images: tuple[int, ...]) -> tuple[int, int, int]:
    """(batch, channels, pixels)."""
    return images[0], images[1], math.prod(images[2:])
