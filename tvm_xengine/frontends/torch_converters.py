"""ATen operators whose conversion TVM's importer lacks, gets wrong, or makes hard to differentiate.

A converter takes a block builder and the arguments in the order of the operator's schema, defaults
filled in, and returns what the operator returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import log, prod, sqrt

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import static_shape

Converter = Callable[..., "relax.Expr | list[relax.Expr]"]


def batch_norm(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    mean: relax.Expr,
    var: relax.Expr,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[relax.Expr]:
    """(y, mean, inverse deviation, running mean, running variance)."""
    channels = (static_shape(x.ty)[1],)
    made = builder.emit(
        relax.op.nn.batch_norm(
            x,
            _filled(channels, 1, x) if weight is None else weight,
            _filled(channels, 0, x) if bias is None else bias,
            mean,
            var,
            axis=1,
            epsilon=epsilon,
            momentum=momentum,
            training=training,
        )
    )
    y, new_mean, new_var = (builder.emit(relax.TupleGetItem(made, k)) for k in range(3))
    return [y, new_mean, new_var, new_mean, new_var]


def native_dropout(
    builder: relax.BlockBuilder, x: relax.Expr, rate: float, training: bool | None
) -> list[relax.Expr]:
    """(y, mask); nobody differentiable reads the mask."""
    y = dropout(builder, x, rate, training is None or training)
    return [y, y]


def dropout(builder: relax.BlockBuilder, x: relax.Expr, rate: float, training: bool) -> relax.Expr:
    """Zero with probability `rate`."""
    if not training or not rate:
        return x
    return builder.emit(relax.TupleGetItem(builder.emit(relax.op.nn.dropout(x, rate)), 0))


def matmul(builder: relax.BlockBuilder, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Matrix product in the type of its factors."""
    return builder.emit(relax.op.matmul(left, right))


def linear(
    builder: relax.BlockBuilder, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """x w^T + b."""
    transposed = builder.emit(relax.op.permute_dims(weight))
    y = builder.emit(relax.op.matmul(x, transposed))
    return y if bias is None else builder.emit(relax.op.add(y, bias))


def addmm(
    builder: relax.BlockBuilder,
    shift: relax.Expr,
    left: relax.Expr,
    right: relax.Expr,
    beta: float,
    alpha: float,
) -> relax.Expr:
    """beta * shift + alpha * left @ right, of matrices or stacks of them."""
    y = builder.emit(relax.op.matmul(left, right))
    if alpha != 1:
        y = builder.emit(relax.op.multiply(y, _scalar(alpha, y)))
    if beta != 1:
        shift = builder.emit(relax.op.multiply(shift, _scalar(beta, y)))
    return builder.emit(relax.op.add(y, shift))


def elu(
    builder: relax.BlockBuilder, x: relax.Expr, alpha: float, scale: float, input_scale: float
) -> relax.Expr:
    """scale * (max(x, 0) + alpha * (exp(min(x, 0)) - 1)), which never overflows."""
    zero = _scalar(0.0, x)
    scaled = x if input_scale == 1 else relax.op.multiply(x, _scalar(input_scale, x))
    below = relax.op.subtract(relax.op.exp(relax.op.minimum(scaled, zero)), _scalar(1.0, x))
    y = relax.op.add(relax.op.nn.relu(x), relax.op.multiply(below, _scalar(alpha, x)))
    return builder.emit(y if scale == 1 else relax.op.multiply(y, _scalar(scale, x)))


def hardtanh(
    builder: relax.BlockBuilder, x: relax.Expr, low: float = -1.0, high: float = 1.0
) -> relax.Expr:
    """Clip to [low, high]."""
    return builder.emit(relax.op.clip(x, float(low), float(high)))


def relu6(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Clip to [0, 6]."""
    return hardtanh(builder, x, 0.0, 6.0)


def hardsigmoid(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """clip(x + 3, 0, 6) / 6."""
    shifted = relax.op.clip(relax.op.add(x, _scalar(3.0, x)), 0.0, 6.0)
    return builder.emit(relax.op.multiply(shifted, _scalar(1 / 6, x)))


def hardswish(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """x * clip(x + 3, 0, 6) / 6."""
    return builder.emit(relax.op.multiply(x, hardsigmoid(builder, x)))


def select(builder: relax.BlockBuilder, x: relax.Expr, dim: int, index: int) -> relax.Expr:
    """The slice at a position, without the axis."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    position = index % shape[axis]
    part = relax.op.strided_slice(x, [axis], [position], [position + 1])
    return builder.emit(relax.op.reshape(part, shape[:axis] + shape[axis + 1 :]))


def attention(
    builder: relax.BlockBuilder,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    mask: relax.Expr | None,
    rate: float,
    is_causal: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> relax.Expr:
    """softmax(q k^T * scale + mask) v over the last two axes."""
    if enable_gqa:
        copies = static_shape(query.ty)[-3] // static_shape(key.ty)[-3]
        key, value = (
            builder.emit(relax.op.repeat(x, copies, len(static_shape(x.ty)) - 3))
            for x in (key, value)
        )
    *outer, rows, width = static_shape(query.ty)
    columns = static_shape(key.ty)[-2]
    rank = len(outer) + 2
    swap = [*range(rank - 2), rank - 1, rank - 2]
    scores = relax.op.matmul(query, builder.emit(relax.op.permute_dims(key, swap)))
    factor = 1 / sqrt(width) if scale is None else scale
    scores = builder.emit(relax.op.multiply(scores, _scalar(factor, query)))
    if is_causal:
        visible = np.tri(rows, columns) > 0
        hidden = np.where(visible, 0.0, -1e30).astype(str(query.ty.dtype))
        mask_of_zeros = relax.const(hidden, str(query.ty.dtype))
        scores = builder.emit(relax.op.add(scores, mask_of_zeros))
    if mask is not None and str(mask.ty.dtype) == "bool":
        scores = builder.emit(relax.op.where(mask, scores, _scalar(-1e30, query)))
    elif mask is not None:
        scores = builder.emit(relax.op.add(scores, mask))
    shares = builder.emit(relax.op.nn.softmax(scores, axis=-1))
    return builder.emit(relax.op.matmul(dropout(builder, shares, rate, True), value))


def var(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> relax.Expr:
    """Variance; `correction` is subtracted from the number of elements (None means 1)."""
    shape = static_shape(x.ty)
    axes = list(range(len(shape))) if not dim else [axis % len(shape) for axis in dim]
    count = prod(shape[axis] for axis in axes)
    biased = builder.emit(relax.op.variance(x, axes, keepdims=keepdim))
    factor = count / max(count - (1 if correction is None else correction), 0)
    return biased if factor == 1 else builder.emit(relax.op.multiply(biased, _scalar(factor, x)))


def std(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: Sequence[int] | None,
    correction: float | None,
    keepdim: bool,
) -> relax.Expr:
    """The square root of the variance."""
    return builder.emit(relax.op.sqrt(var(builder, x, dim, correction, keepdim)))


def amax(
    builder: relax.BlockBuilder, x: relax.Expr, dim: Sequence[int], keepdim: bool
) -> relax.Expr:
    """Maximum over axes."""
    return builder.emit(relax.op.max(x, list(dim) or None, keepdims=keepdim))


def amin(
    builder: relax.BlockBuilder, x: relax.Expr, dim: Sequence[int], keepdim: bool
) -> relax.Expr:
    """Minimum over axes."""
    return builder.emit(relax.op.min(x, list(dim) or None, keepdims=keepdim))


def product(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dim: int | None = None,
    keepdim: bool = False,
) -> relax.Expr:
    """Product along an axis, or of all elements."""
    return builder.emit(relax.op.prod(x, None if dim is None else [dim], keepdims=keepdim))


def scatter_add(
    builder: relax.BlockBuilder, x: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr
) -> relax.Expr:
    """x with the leading part of `source`, shaped like `index`, added at its places."""
    shape = static_shape(index.ty)
    if shape != static_shape(source.ty):
        axes = list(range(len(shape)))
        source = builder.emit(relax.op.strided_slice(source, axes, [0] * len(axes), list(shape)))
    axis = dim % len(shape)
    return builder.emit(relax.op.scatter_elements(x, index, source, axis, "add"))


def hypot(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """sqrt(x^2 + y^2)."""
    squares = relax.op.add(relax.op.multiply(x, x), relax.op.multiply(y, y))
    return builder.emit(relax.op.sqrt(squares))


def exp2(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """2^x."""
    return builder.emit(relax.op.exp(relax.op.multiply(x, _scalar(log(2), x))))


def max_dim(
    builder: relax.BlockBuilder, x: relax.Expr, dim: int, keepdim: bool
) -> list[relax.Expr]:
    """(maximum, its position) along an axis."""
    return [
        builder.emit(relax.op.max(x, [dim], keepdims=keepdim)),
        builder.emit(relax.op.argmax(x, dim, keepdims=keepdim)),
    ]


def min_dim(
    builder: relax.BlockBuilder, x: relax.Expr, dim: int, keepdim: bool
) -> list[relax.Expr]:
    """(minimum, its position) along an axis."""
    return [
        builder.emit(relax.op.min(x, [dim], keepdims=keepdim)),
        builder.emit(relax.op.argmin(x, dim, keepdims=keepdim)),
    ]


def rms_norm(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    normalized_shape: Sequence[int],
    weight: relax.Expr | None,
    epsilon: float | None,
) -> relax.Expr:
    """x / sqrt(mean(x^2) + epsilon) * weight over the trailing axes."""
    tail = tuple(int(extent) for extent in normalized_shape)
    axes = list(range(-len(tail), 0))
    scale = _filled(tail, 1, x) if weight is None else weight
    smallest = float(np.finfo(str(x.ty.dtype)).eps) if epsilon is None else epsilon
    return builder.emit(relax.op.nn.rms_norm(x, scale, axes, smallest))


def layer_norm(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    normalized_shape: Sequence[int],
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    epsilon: float,
    _: bool,
) -> relax.Expr:
    """Normalised over the trailing axes, with or without weight and bias."""
    tail = tuple(int(extent) for extent in normalized_shape)
    scale = _filled(tail, 1, x) if weight is None else weight
    shift = _filled(tail, 0, x) if bias is None else bias
    axes = list(range(-len(tail), 0))
    return builder.emit(relax.op.nn.layer_norm(x, scale, shift, axes, epsilon))


def instance_norm(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    mean: relax.Expr | None,
    variance: relax.Expr | None,
    use_input_stats: bool,
    _momentum: float,
    epsilon: float,
    _cudnn: bool,
) -> relax.Expr:
    """Each channel of each image normalised by itself."""
    if not use_input_stats or mean is not None or variance is not None:
        raise UnsupportedModelError("instance norm with running statistics is not supported")
    shape = static_shape(x.ty)
    return builder.emit(
        relax.op.nn.instance_norm(
            x,
            _filled(shape[1:2], 1, x) if weight is None else weight,
            _filled(shape[1:2], 0, x) if bias is None else bias,
            1,
            list(range(2, len(shape))),
            epsilon,
        )
    )


def upsample_nearest(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
) -> relax.Expr:
    """The pixel at floor(q * in / out)."""
    return _resize(builder, x, size, scales, "nearest_neighbor", "asymmetric")


def upsample_nearest_exact(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
) -> relax.Expr:
    """The pixel at floor((q + 0.5) * in / out)."""
    return _resize(builder, x, size, scales, "nearest_neighbor", "tf_half_pixel_for_nn")


def upsample_cubic(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> relax.Expr:
    """Bicubic interpolation with the spline coefficient -0.75."""
    coordinates = "align_corners" if align_corners else "half_pixel"
    return _resize(builder, x, size, scales, "cubic", coordinates)


def upsample_linear(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> relax.Expr:
    """(Bi-, tri-) linear interpolation."""
    coordinates = "align_corners" if align_corners else "half_pixel"
    return _resize(builder, x, size, scales, "linear", coordinates)


def conv(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> relax.Expr:
    """Convolution of any rank; `padding` may be "same" or "valid"."""
    kernel = static_shape(weight.ty)[2:]
    rank = len(kernel)
    steps = _per_axis(dilation, rank)
    if padding == "same":
        whole = [step * (extent - 1) for step, extent in zip(steps, kernel, strict=True)]
        widths = [width // 2 for width in whole] + [width - width // 2 for width in whole]
    else:
        widths = [0] * 2 * rank if isinstance(padding, str) else _per_axis(padding, rank) * 2
    operators = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
    y = builder.emit(
        operators[rank](
            x,
            weight,
            strides=_per_axis(stride, rank),
            padding=widths,
            dilation=steps,
            groups=groups,
        )
    )
    return _with_channel_bias(builder, y, bias)


def conv_transpose(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> relax.Expr:
    """Transposed convolution of any rank."""
    rank = len(static_shape(x.ty)) - 2
    operators = {
        1: relax.op.nn.conv1d_transpose,
        2: relax.op.nn.conv2d_transpose,
        3: relax.op.nn.conv3d_transpose,
    }
    y = builder.emit(
        operators[rank](
            x,
            weight,
            strides=_per_axis(stride, rank),
            padding=_per_axis(padding, rank) * 2,
            output_padding=_per_axis(output_padding, rank),
            dilation=_per_axis(dilation, rank),
            groups=groups,
        )
    )
    return _with_channel_bias(builder, y, bias)


def avg_pool(
    rank: int,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> relax.Expr:
    """Averages over windows of two or three axes, or their sums over `divisor`."""
    shape = static_shape(x.ty)
    sizes, widths = _per_axis(size, rank), _per_axis(padding, rank)
    steps = _per_axis(stride, rank) if len(stride) else sizes
    if len(shape) == rank + 1:
        x = builder.emit(relax.op.expand_dims(x, 0))
    if divisor is not None:
        # Whole windows of zeros and elements, so that each average is its sum over the same number.
        space = shape[-rank:]
        behind = _padding_behind(space, sizes, steps, widths, ceil_mode=ceil_mode)
        around = [0, 0, 0, 0]
        for before, after in zip(widths, behind, strict=True):
            around += [before, after]
        x, widths, ceil_mode = builder.emit(relax.op.nn.pad(x, around)), [0] * rank, False
    pool = relax.op.nn.avg_pool2d if rank == 2 else relax.op.nn.avg_pool3d
    y = pool(x, sizes, steps, widths, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    if divisor is not None:
        y = relax.op.multiply(builder.emit(y), _scalar(prod(sizes) / divisor, x))
    if len(shape) == rank + 1:
        y = relax.op.squeeze(builder.emit(y), [0])
    return builder.emit(y)


def _padding_behind(
    space: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    widths: Sequence[int],
    *,
    ceil_mode: bool,
) -> list[int]:
    """How many elements behind the last ones the windows read."""
    behind = []
    for extent, size, step, width in zip(space, sizes, steps, widths, strict=True):
        rest = extent + 2 * width - size
        last = -(-rest // step) if ceil_mode else rest // step
        if last * step >= extent + width:
            last -= 1  # no window starts behind the last element
        behind.append(max(0, last * step + size - extent - width))
    return behind


def _with_channel_bias(
    builder: relax.BlockBuilder, y: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    if bias is None:
        return y
    column = (1, static_shape(bias.ty)[0], *(1,) * (len(static_shape(y.ty)) - 2))
    return builder.emit(relax.op.add(y, relax.op.reshape(bias, column)))


def _resize(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
    method: str,
    coordinates: str,
) -> relax.Expr:
    batch, channels, *space = static_shape(x.ty)
    if size is None:
        size = [int(extent * scale) for extent, scale in zip(space, scales or (), strict=True)]
    if scales and coordinates != "align_corners":
        _check_scales(space, size, scales)
    if len(space) == 1:
        flat = relax.op.reshape(x, (batch, channels, 1, *space))
        made = _resize(builder, builder.emit(flat), [1, *size], None, method, coordinates)
        return builder.emit(relax.op.reshape(made, (batch, channels, *size)))
    resize = relax.op.image.resize2d if len(space) == 2 else relax.op.image.resize3d
    return builder.emit(
        resize(
            x,
            tuple(int(extent) for extent in size),
            layout="NCHW" if len(space) == 2 else "NCDHW",
            method=method,
            coordinate_transformation_mode=coordinates,
            rounding_method="floor" if method == "nearest_neighbor" else "round",
        )
    )


def _check_scales(space: Sequence[int], size: Sequence[int], scales: Sequence[float]) -> None:
    """PyTorch takes coordinates from the factors; Relax only knows the sizes."""
    for extent, new_extent, scale in zip(space, size, scales, strict=True):
        if abs(extent * scale - new_extent) > 1e-6 * new_extent:
            raise UnsupportedModelError(
                f"{extent} elements times {scale} are not a whole number; resize to a size, or "
                "with recompute_scale_factor=True"
            )


def _per_axis(values: Sequence[int], rank: int) -> list[int]:
    return [int(value) for value in values] * (rank if len(values) == 1 else 1)


def _scalar(value: float, like: relax.Expr) -> relax.Expr:
    return relax.const(value, str(like.ty.dtype))


def _filled(shape: Sequence[int], value: float, like: relax.Expr) -> relax.Expr:
    dtype = str(like.ty.dtype)
    return relax.const(np.full(tuple(shape), value, dtype), dtype)


CONVERTERS: dict[str, Converter] = {
    "_native_batch_norm_legit_functional.default": batch_norm,
    "addmm.default": addmm,
    "amax.default": amax,
    "amin.default": amin,
    **{f"avg_pool{rank}d.default": partial(avg_pool, rank) for rank in (2, 3)},
    "baddbmm.default": addmm,
    "bmm.default": matmul,
    **{f"conv{rank}d.{form}": conv for rank in (1, 2, 3) for form in ("default", "padding")},
    "conv_transpose1d.default": conv_transpose,
    "conv_transpose2d.input": conv_transpose,
    "conv_transpose3d.input": conv_transpose,
    "dropout.default": dropout,
    "elu.default": elu,
    "exp2.default": exp2,
    "hardsigmoid.default": hardsigmoid,
    "hardswish.default": hardswish,
    "hardtanh.default": hardtanh,
    "hypot.default": hypot,
    "instance_norm.default": instance_norm,
    "layer_norm.default": layer_norm,
    "linear.default": linear,
    "matmul.default": matmul,
    "max.dim": max_dim,
    "min.dim": min_dim,
    "mm.default": matmul,
    "native_dropout.default": native_dropout,
    "prod.default": lambda builder, x, _: product(builder, x),
    "prod.dim_int": lambda builder, x, dim, keepdim, _: product(builder, x, dim, keepdim),
    "relu6.default": relu6,
    "rms_norm.default": rms_norm,
    "scaled_dot_product_attention.default": attention,
    "scatter_add.default": scatter_add,
    "select.int": select,
    "std.correction": std,
    **{f"_upsample_nearest_exact{rank}d.vec": upsample_nearest_exact for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d.vec": upsample_nearest for rank in (1, 2, 3)},
    "upsample_bicubic2d.vec": upsample_cubic,
    "upsample_bilinear2d.vec": upsample_linear,
    "upsample_linear1d.vec": upsample_linear,
    "upsample_trilinear3d.vec": upsample_linear,
    "var.correction": var,
}

DECOMPOSED_BY_TORCH = frozenset({"gru.input", "lstm.input", "rnn_relu.input", "rnn_tanh.input"})
