"""Rarer operators of PyTorch: values and gradients are those of autograd, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status
from tests.shares import first, share
from tests.training.autograd import Operator, exported, worst_gradient_error
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.build import build_training_step

Function = Callable[[torch.Tensor], torch.Tensor]
HALVES = torch.tensor([[[0.1, 0.6, 0.3], [0.9, 0.4, 0.2], [0.5, 0.7, 0.8]]]).double()
HALVES = HALVES.repeat(2, 1, 1)
LONG, PLACES = torch.tensor([[0, 2, 1], [4, 4, 3]]), torch.tensor([0, 2, 1, 4, 4, 3])


def _warped(**options: object) -> Function:
    """The image read at places that it holds itself, some of them outside."""

    def function(x: torch.Tensor) -> torch.Tensor:
        rank = x.dim() - 2
        grid = x[:, :rank].movedim(1, -1) * 1.5
        return F.grid_sample(x, grid, **options)  # type: ignore[arg-type]

    return function


def _transformed(size: tuple[int, ...], *, align_corners: bool) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        theta = x[:, 0, :2, :3]
        grid = F.affine_grid(theta, size, align_corners=align_corners)  # type: ignore[arg-type]
        return F.grid_sample(x, grid, align_corners=align_corners)

    return function


def _unpooled(x: torch.Tensor, *window: int) -> torch.Tensor:
    pooled, places = F.max_pool2d(x, *window, return_indices=True)
    return F.max_unpool2d(pooled.sin(), places, *window, output_size=x.shape[-2:])


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    y[:, 1] = 0.5
    y[0, [1, 2], 3] += 1.0
    y[1:, 2:4] = x[:2, :2].sin()
    y[torch.tensor([[0, 1]]), :, torch.tensor([2, -2])] += 2.0
    return y


def _bags(indices: torch.Tensor, offsets: list[int] | None = None, **options: object) -> Function:
    starts = None if offsets is None else torch.tensor(offsets)
    return lambda x: F.embedding_bag(indices, x, starts, **options)  # type: ignore[arg-type]


def _quantised(x: torch.Tensor) -> torch.Tensor:
    """The rounded value forwards, the gradient of the value itself backwards."""
    with torch.no_grad():
        rounded = x.round() * x.mean()
    scaled = x * 3.0
    return scaled + (rounded - scaled).detach() + rounded * x


OPERATORS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "without a gradient": (_quantised, (3, 5)),
    "group norm of no weights": (lambda x: F.group_norm(x, 2), (2, 4, 5)),
    "distances": (lambda x: torch.cdist(x, 2 * x[:, :3]), (2, 5, 4)),
    "distances of norms below 1": (lambda x: torch.cdist(x, 2 * x, 0.5), (3, 2)),
    "distances between rows": (lambda x: F.pdist(x, 3.0), (4, 5)),
    "modified Bessel functions": (
        lambda x: torch.i0(9 * x) + torch.special.i1e(9 * x) * torch.special.erfcx(x),
        (3, 5),
    ),
    "counts in a range": (
        lambda x: x.sum() * torch.histc(x, 5) * torch.histc(x, 4, -1, 1)[0],
        (9,),
    ),
    "distances to itself": (lambda x: torch.cdist(x, x), (2, 5, 4)),
    **{
        f"distances of norm {p}": (lambda x, p=p: torch.cdist(x, 2 * x[:, :3], p), (2, 5, 4))
        for p in (1.0, 3.0, float("inf"))
    },
    "sorted, equal ones as before": (
        lambda x: (
            torch.sort(x.round(), dim=0, stable=True, descending=True)[1]
            * torch.sort(x, dim=0, stable=True)[0].cumsum(0).cos()
            * torch.argsort(x.round(), dim=1, stable=True)
        ),
        (5, 6),
    ),
    "the third smallest": (
        lambda x: x.kthvalue(3, 0)[0] * x.kthvalue(2, 1, keepdim=True)[0].cos(),
        (4, 5),
    ),
    "variance and mean": (
        lambda x: sum(torch.var_mean(x, 0)) * sum(torch.std_mean(x, (0, 1), correction=0)),
        (4, 5),
    ),
    "quotients that are rounded": (
        lambda x: (
            x * torch.div(x, 0.3, rounding_mode="floor")
            + x * torch.div(x, x.cos(), rounding_mode="trunc")
        ),
        (3, 5),
    ),
    "what is left of a number": (
        lambda x: x * torch.remainder(2.3, x.detach().abs() + 0.3),
        (3, 5),
    ),
    "bilinear form": (
        lambda x: F.bilinear(x, x.cos()[..., :3], x.new_ones(5, 4, 3).cumsum(1), x[0, :5, 0]),
        (2, 6, 4),
    ),
    "running sums of exponentials": (lambda x: torch.logcumsumexp(30 * x, 1), (2, 7, 3)),
    "logarithm of two exponentials": (lambda x: torch.logaddexp(x, x), (2, 7)),
    "inverse error function": (lambda x: torch.erfinv(x.tanh()), (3, 2)),
    "complementary error function": (lambda x: torch.erfc(x), (4, 9)),
    "places after a transformation": (
        _transformed((2, 3, 4, 6), align_corners=False),
        (2, 3, 5, 6),
    ),
    "places from corner to corner": (_transformed((2, 3, 1, 6), align_corners=True), (2, 3, 5, 6)),
    "places in a volume": (
        lambda x: F.affine_grid(x, (2, 3, 4, 5, 2), align_corners=False),  # type: ignore[arg-type]
        (2, 3, 4),
    ),
    "an image with zeros around": (_warped(align_corners=False), (2, 3, 5, 6)),
    "an image with its border around": (
        _warped(align_corners=True, padding_mode="border"),
        (2, 3, 5, 6),
    ),
    **{
        f"an image reflected, {corners}": (
            _warped(align_corners=corners, padding_mode="reflection"),
            (2, 3, 5, 6),
        )
        for corners in (True, False)
    },
    "the nearest pixels": (_warped(align_corners=False, mode="nearest"), (2, 3, 5, 6)),
    "halves between pixels": (
        lambda x: F.grid_sample(
            x,
            F.affine_grid(torch.eye(2, 3).to(x)[None], (1, 3, 4, 4), align_corners=False),  # type: ignore[arg-type]
            mode="nearest",
            align_corners=False,
        ),
        (1, 3, 8, 8),
    ),
    **{
        f"cubic means, {around} around": (
            _warped(align_corners=corners, padding_mode=around, mode="bicubic"),
            (2, 3, 5, 6),
        )
        for around, corners in (("zeros", True), ("border", False), ("reflection", False))
    },
    "maxima of windows that begin anywhere": (
        lambda x: torch.cat(
            [
                one.flatten()
                for one in F.fractional_max_pool2d(x, (2, 3), (4, 5), None, True, HALVES[..., :2])
            ]
        ),
        (2, 3, 9, 10),
    ),
    "the same of a volume": (
        lambda x: F.fractional_max_pool3d(x, 2, (3, 4, 1), _random_samples=HALVES),
        (2, 3, 7, 8, 6),
    ),
    **{
        f"segments, {reduction}": (
            lambda x, reduction=reduction: (
                torch.segment_reduce(x, reduction, lengths=torch.tensor([2, 0, 3]), initial=0.1)
                + torch.segment_reduce(x, reduction, offsets=torch.tensor([0, 1, 4, 5]))
            ),
            (5, 3),
        )
        for reduction in ("sum", "mean", "max", "min", "prod")
    },
    "segments of an inner axis": (
        lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([[1, 3], [2, 2]]), axis=1),
        (2, 4, 3),
    ),
    "the tails of a logarithm": (lambda x: torch.special.log_ndtr(30 * x), (4, 9)),
    "shares of the normal distribution": (lambda x: torch.special.ndtri(x.sigmoid() ** 9), (4, 9)),
    "fractions and exponents": (lambda x: torch.frexp(9 * x)[0] * torch.frexp(x)[1], (4, 9)),
    "polynomials that are held fixed": (
        lambda x: x * torch.special.hermite_polynomial_he(2 * x.detach(), LONG[0]),
        (4, 3),
    ),
    "places of what is not zero": (
        lambda x: x[:1] * torch.nonzero_static(x.round(), size=9).sum(0),
        (3, 2),
    ),
    "polygamma functions far below zero": (
        lambda x: (
            torch.polygamma(1, x - 70.3) + torch.polygamma(2, x - 70.3) + torch.polygamma(5, x)
        ),
        (2, 3),
    ),
    "common divisors": (
        lambda x: x * (torch.gcd(LONG, LONG + 4) + torch.lcm(LONG, LONG - 6)),
        (2, 3),
    ),
    "the first elements": (
        lambda x: x[:2] * x.cos().detach().resize_(2, 3),
        (4, 3),
    ),
    "a volume": (_warped(align_corners=False), (1, 3, 4, 3, 5)),
    "back to where maxima were": (lambda x: _unpooled(x, 2), (2, 3, 6, 8)),
    "the same with padding": (lambda x: _unpooled(x, 3, 3, 1), (2, 3, 7, 8)),
    "the same of one image": (lambda x: _unpooled(x, 2), (3, 6, 8)),
    "places of maxima in windows that overlap": (
        lambda x: x.flatten(2).gather(
            2, F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True, return_indices=True)[1].flatten(2)
        ),
        (2, 3, 9, 10),
    ),
    "maxima of volumes": (lambda x: F.max_pool3d(x, 2, ceil_mode=True), (2, 2, 5, 4, 4)),
    **{
        f"bags, {mode}, equally long": (_bags(LONG, mode=mode), (5, 4))
        for mode in ("sum", "mean", "max")
    },
    **{
        f"bags, {mode}, one of them empty": (_bags(PLACES, [0, 2, 2], mode=mode), (5, 4))
        for mode in ("sum", "mean", "max")
    },
    "bags without the padding": (_bags(PLACES, [0, 2], mode="mean", padding_idx=4), (5, 4)),
    "bags with the last end": (
        _bags(PLACES, [0, 2, 3, 6], mode="mean", include_last_offset=True),
        (5, 4),
    ),
    "weighted bags": (
        lambda x: F.embedding_bag(LONG, x, per_sample_weights=x[:2, :3].cos(), mode="sum"),
        (5, 4),
    ),
    "a table with padding": (
        lambda x: F.embedding(LONG, x, padding_idx=4).cos() + F.embedding(PLACES[:3], x, -4),
        (5, 4),
    ),
    "added at indices of an inner axis": (
        lambda x: x.index_add(1, torch.tensor([2, 0, 2]), x[:, :3].cos()),
        (2, 5, 3),
    ),
    "read at indices of inner axes": (
        lambda x: (
            x[:, [0, 2]].sum((1, 2)) * x[:, [0, 1], [1, -2]].cos().sum(1)
            + x[[0, 1], :, [1, 2]].exp().sum(1)
        ),
        (2, 5, 4),
    ),
    "read from the flat tensor": (lambda x: x.take(torch.tensor([[0, 5], [5, -1]])).cos(), (2, 6)),
    "written by index": (_written, (3, 5, 5)),
}
REFUSED: dict[str, tuple[Function, tuple[int, ...], str]] = {
    "complex numbers": (
        lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j),
        (3, 2),
        "view_as_complex",
    ),
    "a gradient by frequency": (
        lambda x: F.embedding(LONG, x, scale_grad_by_freq=True),
        (5, 4),
        "scale_grad_by_freq",
    ),
    "bags with a gradient by frequency": (
        _bags(LONG, scale_grad_by_freq=True, mode="sum"),
        (5, 4),
        "scale_grad_by_freq",
    ),
    "Airy functions": (lambda x: torch.special.airy_ai(x), (3, 2), "airy_ai"),
}


pytestmark = pytest.mark.usefixtures("in_float64")


FAST = (
    *("without a gradient", "group norm of no weights", "distances", "modified Bessel functions"),
    *("sorted, equal ones as before", "the third smallest", "variance and mean", "bilinear form"),
    *("running sums of exponentials", "inverse error function", "places from corner to corner"),
    *("maxima of windows that begin anywhere", "segments, sum", "fractions and exponents"),
    *("polynomials that are held fixed", "common divisors", "the first elements"),
    *("back to where maxima were", "maxima of volumes", "bags, mean, one of them empty"),
    *("weighted bags", "a table with padding", "added at indices of an inner axis"),
    *("read from the flat tensor", "written by index"),
)
"""One of each kind of kernel; others differ in a mode, a norm, a surrounding, or the number of axes."""


@pytest.mark.parametrize("name", share(OPERATORS, FAST))
def test_gradients_are_those_of_autograd(name: str) -> None:
    function, shape = OPERATORS[name]
    module, x = Operator(function, shape), torch.randn(shape)
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 1e-9


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str) -> None:
    function, shape, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        exported(Operator(function, shape), torch.randn(shape))


def test_a_gradient_that_pytorch_lacks_is_refused() -> None:
    module = Operator(lambda x: torch.special.legendre_polynomial_p(x, 3), (3, 2))
    with pytest.raises(UnsupportedModelError, match="detach its operands"):
        build_training_step(exported(module, torch.randn(3, 2)))


@pytest.mark.parametrize("align_corners", first(1, [False, True]))
def test_places_on_pixels_and_bounds_have_the_derivatives_of_pytorch(align_corners: bool) -> None:
    """The identity, with which spatial transformers begin, puts every place at a kink."""

    def read(image: torch.Tensor, theta: torch.Tensor, padding: str) -> torch.Tensor:
        grid = F.affine_grid(theta, list(image.shape), align_corners=align_corners)
        return F.grid_sample(image, grid, padding_mode=padding, align_corners=align_corners)

    image = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    identity = torch.eye(2, 3)[None]
    samples = [
        Sample(read, ((image, theta, padding), {}))
        for theta in (identity, -identity, torch.tensor([[[0.5, 0.0, 0.5], [0.0, 2.0, 0.0]]]))
        for padding in ("zeros", "border", "reflection")
    ]
    verdicts = judge("grid_sample", samples)
    assert {status for status, _ in verdicts} == {Status.EQUAL}, verdicts
