"""Values and gradients at kinks, ties, bounds and NaN are those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status
from tests.databases.vjp import evaluate
from tests.shares import first
from tvm_xengine.frontends.torch.read import from_torch_export

Function = Callable[..., torch.Tensor]

AT_KINKS: dict[str, Function] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "hardshrink": F.hardshrink,
    "abs": torch.abs,
    "threshold": lambda x: F.threshold(x, 0.5, -1.0),
    "clamp": lambda x: x.clamp(-1, 3),
    "clamp with the bounds exchanged": lambda x: x.clamp(2, -1),
    "clamp with tensors": lambda x: x.clamp(torch.full_like(x, -1), torch.full_like(x, 3)),
    "maximum": lambda x: torch.maximum(x, torch.ones_like(x)),
    "fmax": lambda x: torch.fmax(x, torch.ones_like(x)),
    "floor division": lambda x: torch.div(x, 0.1, rounding_mode="floor") + x,
    "nan_to_num": torch.nan_to_num,
    "not equal to itself": lambda x: torch.where(x == x, x, 1.0) + torch.where(x != x, 2.0, x),
    "at least itself": lambda x: torch.where(x >= x, x, 1.0) + torch.where(x <= x, 2.0, x),
    "minus itself": lambda x: (x - x) + x,
    "by zero": lambda x: torch.where(x > 1, x / 0.0, x / -0.0),
    "by itself": lambda x: (x / x) * x,
}
KINKS = (nan, -inf, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, inf, 2.0, -2.0, 7.0, -7.0)
"""Sixteen, since the last few of another number go through other loops of PyTorch, with other gradients
of NaN."""


def _rows(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


ATTENTION = _rows((0.3, -0.2), (0.1, 0.7), (-0.5, 0.4))
HIDDEN_ROW = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
PLACES = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
OTHERS: dict[str, tuple[Function, torch.Tensor]] = {
    "greatest with ties": (lambda x: x.max(1)[0], _rows((1, 2, 2), (3, 3, 3))),
    "amax with ties": (lambda x: x.amax(1), _rows((1, 2, 2), (3, 3, 3))),
    "greatest with NaN": (lambda x: x.max(1)[0] + x.amin(1), _rows((1, nan, 2), (3, 3, 4))),
    "pooling with NaN": (lambda x: F.max_pool1d(x, 2), _rows((1, nan, 2, 5), (3, 3, 4, 1))),
    "deviation of equal values": (lambda x: x.std(1), _rows((2, 2, 2), (1, 2, 4))),
    "variance of one element": (lambda x: x.var(1), _rows((2,), (1,))),
    "cross-entropy of certainties": (
        lambda x: F.binary_cross_entropy(torch.sigmoid(x), torch.ones_like(x)),
        _rows((40.0, -800.0, 1.0)),
    ),
    "sinc at zero": (torch.sinc, _rows((0.0, 0.5, 1.0))),
    "power of a negative base": (lambda x: (-2.0) ** x, _rows((2.0, 3.0, 0.5))),
    "sorted with NaN": (lambda x: torch.sort(x, stable=True)[0], _rows((2, nan, 1), (nan, 0, -1))),
    **{
        f"attention with a hidden row, {name}": (
            lambda x, mask=mask: F.scaled_dot_product_attention(
                x[None, None], x.sin()[None, None], x.cos()[None, None], mask
            ),
            ATTENTION,
        )
        for name, mask in (
            ("by truth values", HIDDEN_ROW),
            ("by infinities", torch.zeros(3, 3).double().masked_fill(~HIDDEN_ROW, -inf)),
        )
    },
    "attention of three axes": (
        lambda x: F.scaled_dot_product_attention(x[None], x.sin()[None], x[None], is_causal=True),
        ATTENTION,
    ),
    "alpha of add and sub": (
        lambda x: x.add(x.cos(), alpha=2) - x.sub(x.sin(), alpha=3),
        ATTENTION,
    ),
    **{
        f"{reduction} of what goes to a place, with ties": (
            lambda x, reduction=reduction: (
                torch.zeros(2, 3).double().scatter_reduce(0, PLACES, x, reduction)
                + torch.ones(2, 3)
                .double()
                .scatter_reduce(0, PLACES, x, reduction, include_self=False)
                + torch.ones(2, 3).double().index_reduce(0, PLACES[:, 0], x, reduction)
            ),
            _rows((1, 0, -2), (1, -3, -2), (0, 0, 4)),
        )
        for reduction in ("amax", "amin", "mean")
    },
    **{
        f"labels behind a negative one, {reduction}": (
            lambda x, reduction=reduction: F.multilabel_margin_loss(
                x, torch.tensor([[0, 2, -1], [1, -1, 0], [-1, 1, 2]]), reduction=reduction
            ),
            _rows((0.3, -0.2, 0.9), (0.1, 0.7, 1.4), (-0.5, 0.4, 0.2)),
        )
        for reduction in ("mean", "sum", "none")
    },
    "labels that are all ignored": (
        lambda x: F.cross_entropy(x, torch.full((2,), -100)) * x,
        _rows((1, 2, 2), (3, 3, 3)),
    ),
    **{
        f"scores at the margin, {reduction}": (
            lambda x, reduction=reduction: F.multilabel_margin_loss(
                x, torch.tensor([[0, -1, 0], [2, 1, -1]]), reduction=reduction
            ),
            _rows((1, 2, 0), (0.5, 1.5, 1)),
        )
        for reduction in ("mean", "sum", "none")
    },
    "medians with ties": (
        lambda x: x.median() + x.nanmedian() * x.median(1)[0],
        _rows((1, 2, 2), (2, 3, 0)),
    ),
    "medians with ties and NaN": (lambda x: x.median() + x.nanmedian(), _rows((1, nan, 2, 2, 3))),
    "labels of one row": (
        lambda x: F.multilabel_margin_loss(x[0], torch.tensor([2, -1, 0])),
        _rows((0.3, -0.2, 0.9)),
    ),
    "running maxima with NaN": (
        lambda x: x.cummax(1)[0] - x.cummin(1)[0],
        _rows((nan, 1, nan), (3, 3, 3), (1, nan, 2)),
    ),
    "mode with NaN": (
        lambda x: x.mode(1)[0],
        _rows((nan, nan, nan), (1, nan, nan), (nan, 2, 2), (3, nan, 1)),
    ),
    "pooling with several NaN": (lambda x: F.max_pool1d(x, 3, 1), _rows((1, nan, nan, 5, nan))),
    "scalars": (
        lambda x: (
            x.sum().cumsum(0)
            + x.sum().cumprod(0)
            + x.sum().softmax(0)
            + x.sum().max(0)[0]
            + x.sum().amin(0)
            + x.sum().kthvalue(1)[0]
            + x.sum().topk(1)[0].squeeze()
            + x.sum().gather(0, torch.tensor(0))
            + x.sum().index_select(0, torch.tensor([0])).squeeze()
        ),
        ATTENTION,
    ),
    "prelu with one slope": (lambda x: F.prelu(x, x.mean()), ATTENTION),
    "pooling by a norm of a fraction": (lambda x: F.lp_pool1d(x[None], 1.5, 2), ATTENTION),
    "mean of what is no NaN": (lambda x: x.nanmean((0, 1)), _rows((1, nan, 2), (3, nan, 5))),
    "softmax of a hidden row": (
        lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x > 0, -inf), 1),
        _rows((1, 2, 3), (-1, 2, -3)),
    ),
    "resized to less, smoothly": (
        lambda x: F.interpolate(x[None, None], (2, 2), mode="bilinear", antialias=True),
        ATTENTION,
    ),
    "negative padding": (
        lambda x: F.pad(x, (-1, 1, -1, 2)) + F.pad(x[None], (-1, 1, 1, 0), "reflect")[0, :1],
        ATTENTION,
    ),
}


BEYOND_FLOAT32: dict[str, Function] = {
    "clamp": lambda x: x.clamp(min=-1e300),
    "clamp on both sides": lambda x: x.clamp(torch.finfo(torch.float64).min, 1e300),
    "hardtanh": lambda x: F.hardtanh(x, -1e300, 1e300),
    "elu": lambda x: F.elu(x, 1e300),
    "leaky_relu": lambda x: F.leaky_relu(x, 1e39),
    "threshold": lambda x: F.threshold(x, 0.0, -1e300),
    "masked_fill": lambda x: x.masked_fill(x > 0, torch.finfo(torch.float64).min),
    "pad": lambda x: F.pad(x, (1, 1), value=-1e300),
}


def _check(cases: dict[str, tuple[Function, torch.Tensor]]) -> None:
    samples = [Sample(function, ((x,), {})) for function, x in cases.values()]
    outcomes = dict(zip(cases, judge("conventions", samples), strict=True))
    assert not {name: one for name, one in outcomes.items() if one[0] is not Status.EQUAL}


def test_a_product_with_zero_keeps_nan() -> None:
    """PyTorch exports softshrink in this form; TVM takes x * 0 for 0."""
    sample = Sample(lambda x: x * 0, ((_rows((nan, 1.0, -1.0))[0],), {})).requires_grad_(False)
    assert judge("conventions", [sample]) == [(Status.EQUAL, "")]


def test_functions_at_their_kinks() -> None:
    x = _rows(KINKS)[0]
    # torch.export takes hardshrink apart, whose gradient of NaN is then another one.
    finite = x.isfinite() | (x == -inf)
    _check({name: (f, x[finite] if name == "hardshrink" else x) for name, f in AT_KINKS.items()})


@pytest.mark.parametrize("start", first(1, range(4)))
def test_ties_bounds_and_nan(start: int) -> None:
    _check(dict(list(OTHERS.items())[start::4]))


def test_numbers_beyond_float32_are_those_of_float64() -> None:
    """Masks of attention in float64 hold its least number."""
    x = _rows((0.5, -2.0, 1.0))[0]
    _check({name: (function, x) for name, function in BEYOND_FLOAT32.items()})


def test_numbers_beyond_float32_are_infinite_in_float32() -> None:
    x = torch.tensor([0.5, -2.0, 1.0])
    functions: dict[str, Function] = {
        "pow": lambda x: x.sigmoid() ** 1e300,
        "layer_norm": lambda x: F.layer_norm(x, (3,), eps=1e300),
        "huber": lambda x: F.huber_loss(x, x.cos().detach(), delta=1e300, reduction="none"),
    }
    _check({name: (function, x) for name, function in functions.items()})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinity_is_infinite_without_a_gradient(
    approximate: str, dtype: torch.dtype
) -> None:
    """PyTorch's vector loops make NaN of the gradient, and in float32 of the exact value, too."""
    x = torch.tensor([inf, 1e30, 11.0, 1.0, -1.0, nan] * 4, dtype=dtype)
    sample = Sample(lambda x: F.gelu(x, approximate=approximate), ((x,), {}))
    program = torch.export.export(sample.requires_grad_(True), ())
    made = evaluate(from_torch_export(program), [], {0: np.ones(len(x), str(dtype)[6:])})
    wanted = x[3:5].clone().requires_grad_(True)
    F.gelu(wanted, approximate=approximate).sum().backward()
    (gradient,) = made.gradients.values()
    assert made.outputs[0][:3].tolist() == x[:3].tolist()
    assert np.isnan(gradient[0])
    assert gradient[1:3].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(gradient[3:5], wanted.grad, rtol=1e-5)
    assert np.isnan(made.outputs[0][5]) and np.isnan(gradient[5])
