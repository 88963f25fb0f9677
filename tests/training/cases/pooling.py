"""Pooling with every legal padding, dilation and rounding."""

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from hypothesis import assume
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase
from tests.training.cases.convolution import CONVOLUTIONS, Window, draw_space, draw_window

nn = relax.op.nn

MAX = {
    1: (nn.max_pool1d, F.max_pool1d),
    2: (nn.max_pool2d, F.max_pool2d),
    3: (nn.max_pool3d, F.max_pool3d),
}
AVERAGE = {1: nn.avg_pool1d, 2: nn.avg_pool2d, 3: nn.avg_pool3d}
ADAPTIVE = {
    1: (nn.adaptive_avg_pool1d, F.adaptive_avg_pool1d),
    2: (nn.adaptive_avg_pool2d, F.adaptive_avg_pool2d),
    3: (nn.adaptive_avg_pool3d, F.adaptive_avg_pool3d),
}


def _max_pool(rank: int) -> DrawCase:
    ours, theirs = MAX[rank]

    def draw_case(draw: Draw) -> Case:
        window, space, ceil = _pooling(draw, rank)
        ties = draw.flag()
        x = draw.distinct(*draw.integers(2, 1, 2), *space)
        more = _room_for_last_window(window, space) if ceil else [0] * rank

        def reference(x: torch.Tensor) -> torch.Tensor:
            padded = F.pad(_wider(x, window, more, float("-inf")), [0] * 2 * rank)
            return theirs(padded, window.size, window.strides, 0, window.dilation)

        return Case(
            lambda x: ours(
                x, window.size, window.strides, window.padding, window.dilation, ceil_mode=ceil
            ),
            reference,
            {"x": (x * 0.5).round() if ties else x},
            smooth=not ties,
        )

    return draw_case


def _avg_pool(rank: int) -> DrawCase:
    ours = AVERAGE[rank]

    def draw_case(draw: Draw) -> Case:
        window, space, ceil = _pooling(draw, rank)
        counts_padding = draw.flag()
        if counts_padding:
            window = Window(
                window.size,
                window.strides,
                [1] * rank,
                *_at_most(window, [k - 1 for k in window.size]),
            )
            space = [max(extent, k) for extent, k in zip(space, window.size, strict=True)]
            ceil = ceil and not _starts_in_padding(window, space)
        more = _room_for_last_window(window, space) if ceil else [0] * rank

        def reference(x: torch.Tensor) -> torch.Tensor:
            ones = torch.ones_like(x)
            shares = _wider(ones, window, [0] * rank, 1.0 if counts_padding else 0.0)
            shares = F.pad(shares, _after(more))
            return _windows(_wider(x, window, more, 0.0), window) / _windows(shares, window)

        return Case(
            lambda x: ours(
                x,
                window.size,
                window.strides,
                window.padding,
                window.dilation,
                ceil_mode=ceil,
                count_include_pad=counts_padding,
            ),
            reference,
            {"x": draw.normal(*draw.integers(2, 1, 2), *space)},
        )

    return draw_case


def _adaptive_avg_pool(rank: int) -> DrawCase:
    ours, theirs = ADAPTIVE[rank]

    def draw_case(draw: Draw) -> Case:
        space = draw.integers(rank, 1, 6)
        size = [draw.integer(1, extent + 1) for extent in space]
        return Case(
            lambda x: ours(x, size if rank > 1 else size[0]),
            lambda x: theirs(x, size),
            {"x": draw.normal(*draw.integers(2, 1, 2), *space)},
        )

    return draw_case


def _pooling(draw: Draw, rank: int) -> tuple[Window, list[int], bool]:
    """A window, an image, and whether the number of windows is rounded up."""
    window = draw_window(draw, rank)
    half = [reach // 2 for reach in window.reach]
    window = Window(window.size, window.strides, window.dilation, *_at_most(window, half))
    space = draw_space(draw, window)
    ceil = draw.flag() and not _starts_in_padding(window, space)
    assume(not _misses_image(window, space))
    return window, space, ceil


def _at_most(window: Window, limits: list[int]) -> tuple[list[int], list[int]]:
    before, after = (
        [min(width, limit) for width, limit in zip(widths, limits, strict=True)]
        for widths in (window.before, window.after)
    )
    return before, after


def _positions(window: Window, space: list[int], rounding: Callable[[int, int], int]) -> list[int]:
    return [
        rounding(space[a] + window.before[a] + window.after[a] - window.reach[a], window.strides[a])
        + 1
        for a in range(len(space))
    ]


def _rounded_up(length: int, stride: int) -> int:
    return -(-length // stride)


def _starts_in_padding(window: Window, space: list[int]) -> bool:
    """Whether rounding up adds a window that lies in the padding, which PyTorch leaves out."""
    last = _positions(window, space, _rounded_up)
    return any(
        (count - 1) * stride >= extent + before
        for count, stride, extent, before in zip(
            last, window.strides, space, window.before, strict=True
        )
    )


def _misses_image(window: Window, space: list[int]) -> bool:
    """Whether the elements of some window all lie in the padding."""
    counts = _positions(window, space, _rounded_up)
    return any(
        all(
            not 0 <= q * window.strides[a] + k * window.dilation[a] - window.before[a] < extent
            for k in range(window.size[a])
        )
        for a, extent in enumerate(space)
        for q in range(counts[a])
    )


def _room_for_last_window(window: Window, space: list[int]) -> list[int]:
    counts = _positions(window, space, _rounded_up)
    return [
        max(
            0,
            (counts[a] - 1) * window.strides[a]
            + window.reach[a]
            - (space[a] + window.before[a] + window.after[a]),
        )
        for a in range(len(space))
    ]


def _wider(x: torch.Tensor, window: Window, more: list[int], value: float) -> torch.Tensor:
    padded = F.pad(x, window.torch_padding, value=value)
    return F.pad(padded, _after(more), value=value)


def _after(more: list[int]) -> list[int]:
    return [width for extent in reversed(more) for width in (0, extent)]


def _windows(x: torch.Tensor, window: Window) -> torch.Tensor:
    """The sum of each window, as a convolution with ones."""
    rank = len(window.size)
    flat = x.reshape(prod(x.shape[:2]), 1, *x.shape[2:])
    ones = torch.ones(1, 1, *window.size, dtype=x.dtype)
    summed = CONVOLUTIONS[rank][1](flat, ones, None, window.strides, 0, window.dilation)
    return summed.reshape(*x.shape[:2], *summed.shape[2:])


CASES: dict[str, list[DrawCase]] = {
    **{f"nn.max_pool{rank}d": [_max_pool(rank)] for rank in MAX},
    **{f"nn.avg_pool{rank}d": [_avg_pool(rank)] for rank in AVERAGE},
    **{f"nn.adaptive_avg_pool{rank}d": [_adaptive_avg_pool(rank)] for rank in ADAPTIVE},
}
