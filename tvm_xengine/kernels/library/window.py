"""What the calls of convolutions and of their gradients slide a window over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall

_PLACES = {
    "convolution": (0, 1, -1),
    "conv_data_gradient": (-1, 1, 0),
    "conv_weight_gradient": (0, 2, 1),
}
"""Which shapes of a call are those of the convolution's data, weight and output."""


@dataclass(frozen=True)
class Window:
    """Shapes and parameters of a convolution.

    Attributes
    ----------
    weight
        ``(out, in of a group, space...)``.
    dilation
        1 where elements of the window are neighbours.
    before, after
        Padding on the two sides of each axis.
    """

    data: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    groups: int
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def is_pointwise(self) -> bool:
        """Whether the convolution is a plain matrix product over the channels."""
        return (
            self.groups == 1
            and all(extent == 1 for extent in self.weight[2:])
            and not any((*self.before, *self.after))
            and all(stride == 1 for stride in self.strides)
        )


def window(call: LibraryCall) -> Window | None:
    """The convolution of a call, None where it is empty or its padding would be negative."""
    data, weight, output = (call.shapes[place] for place in _PLACES[call.operation])
    rank = len(data) - 2
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
    groups = call.number("groups")
    return Window(data, weight, output, groups, strides, dilation, before, after)


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
