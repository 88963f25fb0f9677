"""Operators that TVM's importer gets wrong come from PyTorch with their meaning."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.shares import share
from tests.training.autograd import Operator, exported, worst_gradient_error

CLASSES = torch.tensor([0, 2, 1, 4])
OPERATORS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "sums over a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (2, 3, 6, 7)),
    "padded sums over a divisor": (
        lambda x: F.avg_pool2d(x, (3, 2), (2, 3), 1, divisor_override=5),
        (2, 3, 6, 7),
    ),
    "sums that end outside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4),
        (2, 3, 8, 9),
    ),
    "averages that end outside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 3, 8, 9),
    ),
    "averages of one image": (lambda x: F.avg_pool2d(x, 3, 1), (3, 6, 7)),
    "sums of volumes": (lambda x: F.avg_pool3d(x, 2, divisor_override=7), (2, 2, 5, 4, 4)),
    "minus infinity where masked": (
        lambda x: x.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf")).softmax(-1),
        (2, 5, 5),
    ),
    "products": (lambda x: x.prod(2) + x.prod(1, keepdim=True).sum(2) + x.prod(), (2, 3, 4)),
    "adaptive maxima, all alike": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (2, 3, 9, 6)),
    "adaptive maxima, uneven": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (2, 3, 7, 8)),
    "adaptive maxima, fewer than asked for": (lambda x: F.adaptive_max_pool2d(x, 7), (2, 3, 4, 9)),
    "adaptive maxima of one image": (lambda x: F.adaptive_max_pool2d(x, 2), (3, 4, 9)),
    "adaptive maxima of lines": (lambda x: F.adaptive_max_pool1d(x, 3), (2, 3, 10)),
    "adaptive maxima of volumes": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), (2, 2, 5, 6, 7)),
    "sums at places": (
        lambda x: x.scatter_add(2, torch.tensor([[[0, 1, 1]] * 4] * 2), x[:, :, 2:5].square()),
        (2, 4, 9),
    ),
    "windows as columns": (
        lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=2).cos(),
        (2, 3, 7, 8),
    ),
    "columns at windows": (
        lambda x: F.fold(x, (8, 7), (2, 3), dilation=2, padding=(0, 1), stride=2).cos(),
        (2, 12, 9),
    ),
    "windows along an axis": (lambda x: x.unfold(1, 3, 2).cos(), (2, 8, 3)),
    "fewer keys than queries": (
        lambda x: F.scaled_dot_product_attention(
            x, x[:, ::2], x[:, 1::2], is_causal=True, enable_gqa=True
        ),
        (2, 4, 5, 3),
    ),
    "layer norm without weights": (lambda x: F.layer_norm(x, (3, 4)), (2, 5, 3, 4)),
    "hypotenuses and powers of two": (lambda x: torch.hypot(x, x.exp2()), (2, 5)),
    **{
        f"smoothed while it is resized, {mode} to {size or factor}, {corners}": (
            lambda x, mode=mode, size=size, factor=factor, corners=corners: F.interpolate(
                x, size, factor, mode, align_corners=corners, antialias=True
            ),
            (2, 3, 7, 9),
        )
        for mode, size, factor, corners in (
            ("bilinear", (3, 4), None, False),
            ("bilinear", None, 0.6, False),
            ("bicubic", None, (0.6, 1.3), False),
            ("bicubic", (9, 4), None, True),
        )
    },
    "exponentials below zero": (lambda x: F.celu(x, 0.3), (3, 5)),
    "padding that cuts off": (
        lambda x: F.pad(x, (-1, 2, 1, -2, 0, 1), value=0.7).cos(),
        (2, 3, 4, 5),
    ),
    "the leading part written at places": (
        lambda x: x.scatter(1, torch.tensor([[0, 2, 1], [3, 1, 0]]), x.detach().cos()),
        (3, 5),
    ),
    "coordinates by column and row": (
        lambda x: torch.stack(torch.meshgrid(x[0], x[1, :3], x[2, :2], indexing="xy")).cos(),
        (3, 5),
    ),
    "cross-entropies in the network": (
        lambda x: (
            torch.stack(
                [
                    F.cross_entropy(x, CLASSES, x.detach()[0].abs(), label_smoothing=0.3),
                    F.cross_entropy(x, CLASSES, ignore_index=2, reduction="sum"),
                ]
            )
            * F.cross_entropy(x, CLASSES, reduction="none")[:, None]
        ),
        (4, 5),
    ),
    "minus infinity in a tensor": (
        lambda x: torch.maximum(x, torch.full((4, 5), float("-inf"))),
        (2, 4, 5),
    ),
}


FAST = (
    *("padded sums over a divisor", "averages that end outside", "sums of volumes", "products"),
    *("minus infinity where masked", "adaptive maxima, uneven", "sums at places"),
    *("windows as columns", "columns at windows", "fewer keys than queries"),
    *("layer norm without weights", "hypotenuses and powers of two", "padding that cuts off"),
    *("smoothed while it is resized, bilinear to 0.6, False", "coordinates by column and row"),
)
"""One of each operator that is no composite of others."""


@pytest.mark.parametrize("name", share(OPERATORS, FAST))
def test_gradients_are_those_of_autograd(name: str) -> None:
    torch.manual_seed(0)
    module = Operator(*OPERATORS[name])
    x = torch.randn(OPERATORS[name][1])
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([3])) < 1e-5
