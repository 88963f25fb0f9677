"""Convolutions of any rank."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, per_axis
from tvm_xengine.relax_ir.types import static_shape


def conv(
    builder: Builder,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Expr:
    """Convolution of any rank; `padding` may be "same" or "valid"."""
    kernel = static_shape(weight.ty)[2:]
    rank = len(kernel)
    steps = per_axis(dilation, rank)
    if len(static_shape(x.ty)) == rank + 1:
        one = builder.emit(relax.op.expand_dims(x, 0))
        y = conv(builder, one, weight, bias, stride, padding, dilation, groups)
        return builder.emit(relax.op.squeeze(y, [0]))
    if padding == "same":
        whole = [step * (extent - 1) for step, extent in zip(steps, kernel, strict=True)]
        widths = [width // 2 for width in whole] + [width - width // 2 for width in whole]
    else:
        widths = [0] * 2 * rank if isinstance(padding, str) else per_axis(padding, rank) * 2
    operators = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
    y = builder.emit(
        operators[rank](
            x,
            weight,
            strides=per_axis(stride, rank),
            padding=widths,
            dilation=steps,
            groups=groups,
        )
    )
    return _with_channel_bias(builder, y, bias)


def conv_transpose(
    builder: Builder,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Expr:
    """Transposed convolution of any rank."""
    rank = len(static_shape(weight.ty)) - 2
    if len(static_shape(x.ty)) == rank + 1:
        one = builder.emit(relax.op.expand_dims(x, 0))
        y = conv_transpose(
            builder, one, weight, bias, stride, padding, output_padding, groups, dilation
        )
        return builder.emit(relax.op.squeeze(y, [0]))
    operators = {
        1: relax.op.nn.conv1d_transpose,
        2: relax.op.nn.conv2d_transpose,
        3: relax.op.nn.conv3d_transpose,
    }
    strides, ends = per_axis(stride, rank), per_axis(padding, rank)
    more = per_axis(output_padding, rank)
    # Relax adds less than a stride at the end. What PyTorch adds beyond that is not cropped, then zero.
    beyond = [max(0, n - s + 1) for n, s in zip(more, strides, strict=True)]
    uncropped = [min(n, end) for n, end in zip(beyond, ends, strict=True)]
    zeros = [n - u for n, u in zip(beyond, uncropped, strict=True)]
    y = builder.emit(
        operators[rank](
            x,
            weight,
            strides=strides,
            padding=[*ends, *(end - u for end, u in zip(ends, uncropped, strict=True))],
            output_padding=[n - b for n, b in zip(more, beyond, strict=True)],
            dilation=per_axis(dilation, rank),
            groups=groups,
        )
    )
    if any(zeros):
        widths = [0, 0, 0, 0] + [width for n in zeros for width in (0, n)]
        y = builder.emit(relax.op.nn.pad(y, widths))
    return _with_channel_bias(builder, y, bias)


def convolution(
    builder: Builder,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    """Either kind of convolution."""
    if transposed:
        return conv_transpose(
            builder, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(builder, x, weight, bias, stride, padding, dilation, groups)


def _with_channel_bias(builder: Builder, y: Expr, bias: Expr | None) -> Expr:
    if bias is None:
        return y
    column = (1, static_shape(bias.ty)[0], *(1,) * (len(static_shape(y.ty)) - 2))
    return builder.emit(relax.op.add(y, relax.op.reshape(bias, column)))


CONVERTERS: dict[str, Converter] = {
    **{f"conv{rank}d.{form}": conv for rank in (1, 2, 3) for form in ("default", "padding")},
    "conv_transpose1d.default": conv_transpose,
    "convolution.default": convolution,
    "conv_transpose2d.input": conv_transpose,
    "conv_transpose3d.input": conv_transpose,
}
