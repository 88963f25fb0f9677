"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
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


@dataclass(frozen=True)
class _Convolution:
    """Shapes of a convolution, and oneDNN's parameters for it.

    Attributes
    ----------
    weight
        ``(out, in, space...)``, with the groups in front where there are several.
    dilation
        Counts from 0, as oneDNN does.
    """

    data: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def window(self) -> tuple[tuple[int, ...], ...]:
        return self.strides, self.dilation, self.before, self.after

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a plain matrix product over the channels."""
        rank = len(self.strides)
        return (
            len(self.weight) == rank + 2
            and all(extent == 1 for extent in self.weight[2:])
            and not any((*self.before, *self.after))
            and all(stride == 1 for stride in self.strides)
        )


def convolution(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The output of data and weight, None where oneDNN has no good implementation."""
    shape = _shape(call, data=call.shapes[0], weight=call.shapes[1], output=call.shapes[-1])
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
            1, library.plain(shape.weight), forward.memory_desc(QUERY_WEIGHTS)
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
    shape = _shape(call, data=call.shapes[-1], weight=call.shapes[1], output=call.shapes[0])
    if shape is None:
        return None
    if shape.is_pointwise and (program := pointwise_data_gradient(call, library)) is not None:
        return program
    if call.residual:
        return None
    data, weight, output = _layouts(shape, library)
    backward = _backward("convolution_backward_data", (data, weight, output), shape, library)
    if backward is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_WEIGHTS: builder.read(
            1, library.plain(shape.weight), backward.memory_desc(QUERY_WEIGHTS)
        ),
        ARG_DIFF_DST: builder.read(
            0, library.plain(shape.output), backward.memory_desc(QUERY_DIFF_DST)
        ),
    }
    builder.compute(
        backward,
        arguments,
        (ARG_DIFF_SRC, 2, library.plain(shape.data), backward.memory_desc(QUERY_DIFF_SRC)),
    )
    return builder.program()


def conv_weight_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The gradient of the weight of data and output gradient."""
    shape = _shape(call, data=call.shapes[0], weight=call.shapes[2], output=call.shapes[1])
    if shape is None:
        return None
    if shape.is_pointwise and (program := pointwise_weight_gradient(call, library)) is not None:
        return program
    data, weight, output = _layouts(shape, library)
    tensors = (data, weight, None, output)
    backward = _backward("convolution_backward_weights", tensors, shape, library)
    if backward is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_SRC: builder.read(0, library.plain(shape.data), backward.memory_desc(QUERY_SRC)),
        ARG_DIFF_DST: builder.read(
            1, library.plain(shape.output), backward.memory_desc(QUERY_DIFF_DST)
        ),
    }
    builder.compute(
        backward,
        arguments,
        (
            ARG_DIFF_WEIGHTS,
            2,
            library.plain(shape.weight),
            backward.memory_desc(QUERY_DIFF_WEIGHTS),
        ),
    )
    return builder.program()


def _forward(
    shape: _Convolution,
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
        *shape.window,
        attributes=library.attributes(),
    )


def _backward(
    kind: str,
    tensors: tuple[MemoryDesc | None, ...],
    shape: _Convolution,
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
        *shape.window,
        forward,
        attributes=library.attributes(),
    )


def _layouts(
    shape: _Convolution, library: OnednnLibrary
) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
    """Data, weight and output as oneDNN may lay them out.

    It computes convolutions fastest on blocked channels, though we copy into and out of them.
    """
    data, weight, output = map(library.any_layout, (shape.data, shape.weight, shape.output))
    return data, weight, output


def _shape(
    call: LibraryCall, *, data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...]
) -> _Convolution | None:
    """The convolution between these shapes, None where its padding would be negative."""
    rank, groups = len(data) - 2, call.number("groups")
    strides, padding, dilation = (call.numbers(name) for name in ("strides", "padding", "dilation"))
    before, after = padding[:rank], padding[rank:]
    reach = [dilation[a] * (weight[a + 2] - 1) + 1 for a in range(rank)]
    covered = _outputs(data[2:], before, after, reach, strides)
    if covered != output[2:]:
        after = tuple(
            (output[a + 2] - 1) * strides[a] + reach[a] - data[a + 2] - before[a]
            for a in range(rank)
        )
    if min((*before, *after), default=0) < 0 or 0 in (*data, *weight, *output):
        return None
    if groups > 1:
        weight = (groups, weight[0] // groups, *weight[1:])
    return _Convolution(
        data, weight, output, strides, tuple(d - 1 for d in dilation), before, after
    )


def _outputs(
    space: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    reach: Sequence[int],
    strides: Sequence[int],
) -> tuple[int, ...]:
    return tuple(
        (space[a] + before[a] + after[a] - reach[a]) // strides[a] + 1 for a in range(len(space))
    )
