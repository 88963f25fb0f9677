"""Every function of elements in PyTorch's database, at zeros, bounds, infinities and NaN."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import inf, nan

import pytest
import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from tests.databases.torch_judge import INEXACT, judge
from tests.databases.torch_samples import Sample, op_infos
from tests.databases.verdict import Status

KINKS = (nan, -inf, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, inf, 2.0, -2.0, 7.0, -7.0)
"""Sixteen, as many as PyTorch's vector loops take at once."""

AT_ONCE = 12
"""Functions in one export."""

INCONSISTENT = {
    "logit": "of -0.0 PyTorch's derivative has another sign in its vector loops",
    "nn.functional.celu": "of NaN the derivative is 1 in the vector loop for float32, else NaN",
    "nn.functional.elu": "of NaN the derivative is 1 in the vector loop for float32, else NaN",
    "nn.functional.hardshrink": "of NaN the derivative is 0 in the vector loops, else 1",
    "nn.functional.selu": "of NaN the derivative is 1 in the vector loop for float32, else NaN",
    **{
        f"special.{name}": "of NaN PyTorch returns what was in the memory"
        for name in (
            *(f"{shift}chebyshev_polynomial_{k}" for shift in ("", "shifted_") for k in "tuvw"),
            *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"),
            "legendre_polynomial_p",
        )
    },
    **dict.fromkeys(INEXACT, "PyTorch's values are off"),
}
"""Functions whose values or derivatives in PyTorch differ with the number of elements, or are wrong."""


def _samples(dtype: torch.dtype) -> Iterator[tuple[str, Sample]]:
    one = torch.tensor(KINKS, dtype=dtype)
    pairs = one.repeat_interleave(len(KINKS)), one.repeat(len(KINKS))
    for name, info in op_infos().items():
        if dtype not in info.dtypes or name in INCONSISTENT:
            continue
        if isinstance(info, UnaryUfuncInfo):
            arguments = (one,), info.sample_kwargs("cpu", dtype, one)[0]
        elif isinstance(info, BinaryUfuncInfo):
            arguments = pairs, {}
        else:
            continue
        sample = Sample(info.op, arguments)
        yield name, sample.requires_grad_(bool(info.supports_autograd))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_functions_of_elements_are_equal_at_their_kinks(dtype: torch.dtype) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(_samples(dtype))
    wrong = []
    for start in range(0, len(samples), AT_ONCE):
        names, given = zip(*samples[start : start + AT_ONCE], strict=True)
        verdicts = judge("functions at their kinks", given)
        wrong += [
            f"{name}: {reason}"
            for name, (status, reason) in zip(names, verdicts, strict=True)
            if status in (Status.DIFFERENT, Status.CRASHED)
        ]
    assert not wrong, "\n".join(wrong)
    assert len(samples) > 150
