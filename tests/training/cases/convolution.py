"""Convolutions and their transposes, of one, two and three dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase

nn = relax.op.nn

CONVOLUTIONS = {1: (nn.conv1d, F.conv1d), 2: (nn.conv2d, F.conv2d), 3: (nn.conv3d, F.conv3d)}
TRANSPOSED = {
    1: (nn.conv1d_transpose, F.conv_transpose1d),
    2: (nn.conv2d_transpose, F.conv_transpose2d),
    3: (nn.conv3d_transpose, F.conv_transpose3d),
}


@dataclass(frozen=True)
class Window:
    """How a window moves over an image; `before` and `after` are padding."""

    size: list[int]
    strides: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]

    @property
    def padding(self) -> list[int]:
        return [*self.before, *self.after]

    @property
    def torch_padding(self) -> list[int]:
        """As `F.pad` wants it: last axis first."""
        pairs = zip(reversed(self.before), reversed(self.after), strict=True)
        return [width for pair in pairs for width in pair]

    @property
    def reach(self) -> list[int]:
        """Extent of the dilated window."""
        return [(k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True)]


def draw_window(draw: Draw, rank: int) -> Window:
    """A window with its padding, narrower than the window itself."""
    size, strides = draw.integers(rank, 1, 3), draw.integers(rank, 1, 3)
    dilation = draw.integers(rank, 1, 2)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    before, after = ([draw.integer(0, extent - 1) for extent in reach] for _ in range(2))
    return Window(size, strides, dilation, before, after)


def draw_space(draw: Draw, window: Window) -> list[int]:
    """An image in which at least one window fits."""
    smallest = (
        max(1, reach - low - high)
        for reach, low, high in zip(window.reach, window.before, window.after, strict=True)
    )
    return [draw.integer(least, least + 4) for least in smallest]


def _convolution(rank: int) -> DrawCase:
    ours, theirs = CONVOLUTIONS[rank]

    def draw_case(draw: Draw) -> Case:
        window = draw_window(draw, rank)
        groups = draw.one_of([1, 1, 2, 3])
        batch, inner, outer = draw.integers(3, 1, 2)
        x = draw.normal(batch, inner * groups, *draw_space(draw, window))
        weight = draw.normal(outer * groups, inner, *window.size)

        def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            padded = F.pad(x, window.torch_padding)
            return theirs(padded, weight, None, window.strides, 0, window.dilation, groups)

        return Case(
            lambda x, weight: ours(
                x, weight, window.strides, window.padding, window.dilation, groups
            ),
            reference,
            {"x": x, "weight": weight},
        )

    return draw_case


def _transposed(rank: int) -> DrawCase:
    ours, theirs = TRANSPOSED[rank]

    def draw_case(draw: Draw) -> Case:
        window = draw_window(draw, rank)
        groups = draw.one_of([1, 1, 2, 3])
        batch, inner, outer = draw.integers(3, 1, 2)
        extra = [draw.integer(0, stride - 1) for stride in window.strides]
        whole = [low + high for low, high in zip(window.before, window.after, strict=True)]
        space = [
            draw.integer(1 + max(0, width - reach + stride) // stride, 5)
            for width, reach, stride in zip(whole, window.reach, window.strides, strict=True)
        ]
        x = draw.normal(batch, inner * groups, *space)
        weight = draw.normal(inner * groups, outer, *window.size)

        def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            full = theirs(x, weight, None, window.strides, 0, 0, groups, window.dilation)
            return F.pad(full, _cropped(window, extra))

        return Case(
            lambda x, weight: ours(
                x, weight, window.strides, window.padding, extra, window.dilation, groups
            ),
            reference,
            {"x": x, "weight": weight},
        )

    return draw_case


def _cropped(window: Window, extra: Sequence[int]) -> list[int]:
    triples = zip(window.before, window.after, extra, strict=True)
    pairs = [(-low, more - high) for low, high, more in triples]
    return [width for pair in reversed(pairs) for width in pair]


CASES: dict[str, list[DrawCase]] = {
    **{f"nn.conv{rank}d": [_convolution(rank)] for rank in CONVOLUTIONS},
    **{f"nn.conv{rank}d_transpose": [_transposed(rank)] for rank in TRANSPOSED},
}
