"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.window import Window, window
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_BIAS,
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_DIFF_WEIGHTS,
    ARG_DST,
    ARG_SRC,
    ARG_WEIGHTS,
    CONVOLUTION_DIRECT,
    FORWARD_TRAINING,
    QUERY_DIFF_DST,
    QUERY_DIFF_SRC,
    QUERY_DIFF_WEIGHTS,
    QUERY_DST,
    QUERY_SRC,
    QUERY_WEIGHTS,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.primitives.pointwise import (
    pointwise,
    pointwise_data_gradient,
    pointwise_weight_gradient,
)
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder

_Role = tuple[int, int]
"""Of a tensor in a primitive: as an argument, and in a query for its layout."""
_SRC, _WEIGHTS = (ARG_SRC, QUERY_SRC), (ARG_WEIGHTS, QUERY_WEIGHTS)
_DIFF_SRC, _DIFF_WEIGHTS = (ARG_DIFF_SRC, QUERY_DIFF_SRC), (ARG_DIFF_WEIGHTS, QUERY_DIFF_WEIGHTS)
_DIFF_DST = (ARG_DIFF_DST, QUERY_DIFF_DST)


def convolution(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The output of data and weight, None where oneDNN has no good implementation."""
    shape = window(call)
    if shape is None:
        return None
    if shape.is_pointwise and (program := pointwise(call, library)) is not None:
        return program
    if call.residual:
        return None
    forward = _forward(shape, library, library.describe_good, bias=call.bias)
    if forward is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_SRC: builder.read(0, library.plain(shape.data), forward.memory_desc(QUERY_SRC)),
        ARG_WEIGHTS: builder.read(
            1, library.plain(_weight(shape)), forward.memory_desc(QUERY_WEIGHTS)
        ),
    }
    if call.bias:
        desc = library.plain(shape.output[1:2])
        arguments[ARG_BIAS] = builder.read(2, desc, desc)
    result = library.plain(shape.output)
    builder.compute(
        forward,
        arguments,
        (ARG_DST, len(call.shapes) - 1, result, forward.memory_desc(QUERY_DST)),
    )
    return builder.program()


def conv_data_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The gradient of the data of output gradient and weight."""
    shape = window(call)
    if shape is None:
        return None
    if shape.is_pointwise and (program := pointwise_data_gradient(call, library)) is not None:
        return program
    if call.residual:
        return None
    backward = _backward("convolution_backward_data", _layouts(shape, library), shape, library)
    if backward is None:
        return None
    weight, output = (1, _WEIGHTS, _weight(shape)), (0, _DIFF_DST, shape.output)
    return _gradient(library, backward, (weight, output), (_DIFF_SRC, shape.data))


def conv_weight_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The gradient of the weight of data and output gradient."""
    shape = window(call)
    if shape is None:
        return None
    if shape.is_pointwise and (program := pointwise_weight_gradient(call, library)) is not None:
        return program
    source, filters, gradient = _layouts(shape, library)
    tensors = (source, filters, None, gradient)
    backward = _backward("convolution_backward_weights", tensors, shape, library)
    if backward is None:
        return None
    data, output = (0, _SRC, shape.data), (1, _DIFF_DST, shape.output)
    return _gradient(library, backward, (data, output), (_DIFF_WEIGHTS, _weight(shape)))


def _gradient(
    library: OnednnLibrary,
    backward: PrimitiveDesc,
    reads: Sequence[tuple[int, _Role, tuple[int, ...]]],
    result: tuple[_Role, tuple[int, ...]],
) -> Program:
    """The third tensor of the call from the first two, each with its position, role and shape."""
    builder = ProgramBuilder(library)
    arguments = {
        argument: builder.read(position, library.plain(shape), backward.memory_desc(query))
        for position, (argument, query), shape in reads
    }
    (argument, query), shape = result
    builder.compute(
        backward, arguments, (argument, 2, library.plain(shape), backward.memory_desc(query))
    )
    return builder.program()


def _forward(
    shape: Window,
    library: OnednnLibrary,
    describe: Callable[..., PrimitiveDesc | None],
    *,
    bias: bool = False,
) -> PrimitiveDesc | None:
    """The forward primitive; the backward ones take any of them as a hint."""
    data, weight, output = _layouts(shape, library)
    return describe(
        "convolution_forward",
        FORWARD_TRAINING,
        CONVOLUTION_DIRECT,
        data,
        weight,
        library.plain(shape.output[1:2]) if bias else None,
        output,
        *_parameters(shape),
        attributes=library.attributes(),
    )


def _backward(
    kind: str,
    tensors: tuple[MemoryDesc | None, ...],
    shape: Window,
    library: OnednnLibrary,
) -> PrimitiveDesc | None:
    """A good backward primitive of that kind, None where oneDNN has none."""
    forward = _forward(shape, library, library.describe)
    if forward is None:
        return None
    return library.describe_good(
        kind,
        CONVOLUTION_DIRECT,
        *tensors,
        *_parameters(shape),
        forward,
        attributes=library.attributes(),
    )


def _layouts(shape: Window, library: OnednnLibrary) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
    """Data, weight and output as oneDNN may lay them out.

    It computes convolutions fastest on blocked channels, though we copy into and out of them.
    """
    data, weight, output = map(library.any_layout, (shape.data, _weight(shape), shape.output))
    return data, weight, output


def _weight(shape: Window) -> tuple[int, ...]:
    """The weight's shape, with the groups in front where there are several."""
    if shape.groups == 1:
        return shape.weight
    return (shape.groups, shape.weight[0] // shape.groups, *shape.weight[1:])


def _parameters(shape: Window) -> tuple[tuple[int, ...], ...]:
    """oneDNN counts dilation from 0."""
    return shape.strides, tuple(d - 1 for d in shape.dilation), shape.before, shape.after
