"""Operators that fold, scan or order rows, at ties, zeros, infinities and NaN, through our steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isnan, nan

import pytest
import torch

from tests.databases.step import evaluate_in_step
from tests.databases.torch_judge import judge
from tests.databases.torch_samples import Sample
from tests.databases.verdict import Status

ROWS = {
    "ties": (2.0, 1.0, 2.0, 1.0, 2.0, 0.5),
    "all equal": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    "one zero": (2.0, -3.0, 0.0, 4.0, 1.0, 0.5),
    "two zeros": (2.0, 0.0, -3.0, -0.0, 1.0, 0.5),
    "all zero": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "NaN first": (nan, 1.0, 2.0, 2.0, -1.0, 0.5),
    "NaN inside": (1.0, 2.0, nan, 2.0, -1.0, 0.5),
    "two NaN": (1.0, nan, 3.0, nan, 3.0, 0.5),
    "infinities": (inf, 1.0, -inf, inf, 0.5, -inf),
    "infinity and zero": (inf, 0.0, 1.0, -1.0, 0.5, 2.0),
    "infinity and NaN": (inf, nan, 1.0, -inf, 0.5, 2.0),
    "zero and NaN": (1.0, 0.0, nan, 2.0, -1.0, 0.5),
    "infinity between zeros": (2.0, 0.0, inf, 3.0, 0.0, 1.0),
    "negative": (-1.0, -2.0, -1.0, -4.0, -2.0, -0.5),
}

Function = Callable[[torch.Tensor], object]

SCANS: dict[str, Function] = {
    "cumprod": lambda x: torch.cumprod(x, 1),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "cummax": lambda x: torch.cummax(x, 1),
    "cummin": lambda x: torch.cummin(x, 1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
}

ORDERS: dict[str, Function] = {
    "sort": lambda x: torch.sort(x, dim=1, stable=True),
    "sort, descending": lambda x: torch.sort(x, dim=1, descending=True, stable=True),
    "argsort": lambda x: torch.argsort(x, dim=1, stable=True),
    "topk": lambda x: torch.topk(x, 3, dim=1).values,
    "topk, smallest": lambda x: torch.topk(x, 3, dim=1, largest=False).values,
    "kthvalue": lambda x: torch.kthvalue(x, 4, dim=1).values,
    "median": lambda x: torch.median(x, dim=1),
    "median of all": torch.median,
    "nanmedian": lambda x: torch.nanmedian(x, dim=1),
    "nanmedian of all": torch.nanmedian,
    "mode": lambda x: torch.mode(x, dim=1),
    "quantile": lambda x: torch.quantile(x, 0.4, dim=1),
    "nanquantile": lambda x: torch.nanquantile(x, 0.4, dim=1),
    "msort": torch.msort,
    "unique order of argmax": lambda x: torch.argmax(x, dim=1),
    "argmin": lambda x: torch.argmin(x, dim=1),
}

FOLDS: dict[str, Function] = {
    "max": lambda x: torch.max(x, dim=1),
    "min": lambda x: torch.min(x, dim=1),
    "amax": lambda x: torch.amax(x, dim=1),
    "amin": lambda x: torch.amin(x, dim=1),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "max of all": torch.max,
    "min of all": torch.min,
    "prod": lambda x: torch.prod(x, dim=1),
    "prod of all": torch.prod,
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "std": lambda x: torch.std(x, dim=1),
    "var": lambda x: torch.var(x, dim=1),
    "nansum": lambda x: torch.nansum(x, dim=1),
    "nanmean": lambda x: torch.nanmean(x, dim=1),
    "all": lambda x: torch.all(x, dim=1),
    "any": lambda x: torch.any(x, dim=1),
    "count_nonzero": lambda x: torch.count_nonzero(x, dim=1),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "normalize": lambda x: torch.nn.functional.normalize(x, dim=1),
    "cosine_similarity": lambda x: torch.cosine_similarity(x, x.flip(1), dim=1),
}

POWERS = (0, 0.5, 1, 1.5, 2, 3, inf, -inf, -1)
NORMS: dict[str, Function] = {
    **{
        f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1)  # type: ignore[misc]
        for p in POWERS
    },
    **{f"torch.norm {p}": lambda x, p=p: torch.norm(x, p, dim=1) for p in POWERS},  # type: ignore[misc]
}


def beside(x: torch.Tensor) -> torch.Tensor:
    """Rows to compare those of `x` with; some entries are equal."""
    return torch.cat([x[:, :3], x[:, :3].flip(1)], 1)


DISTANCES: dict[str, Function] = {
    **{
        f"cdist {p}": lambda x, p=p: torch.cdist(x, beside(x), p)  # type: ignore[misc]
        for p in (0, 0.5, 1, 1.5, 2, 3, inf)
    },
    "cdist, by a product": lambda x: torch.cdist(
        x, beside(x), compute_mode="use_mm_for_euclid_dist"
    ),
    **{f"pdist {p}": lambda x, p=p: torch.pdist(x, p) for p in (0, 1, 2, 3, inf)},  # type: ignore[misc]
    **{f"dist {p}": lambda x, p=p: torch.dist(x, beside(x), p) for p in (1, 2, 3, inf)},  # type: ignore[misc]
    "pairwise_distance": lambda x: torch.nn.functional.pairwise_distance(x, beside(x)),
}

_UNORDERED = "of equal values PyTorch returns whichever its partial sort leaves first"
_UNSORTED = "PyTorch sorts with a comparison that is no order where a NaN is"

UNDETERMINED: dict[str, tuple[str, Callable[[tuple[float, ...]], bool]]] = {
    **{
        name: (_UNORDERED, lambda row: len({str(x) for x in row}) < len(row))
        for name in ("topk", "topk, smallest", "kthvalue")
    },
    "mode": (_UNSORTED, lambda row: any(isnan(x) for x in row)),
}
"""Results or gradients that PyTorch does not determine, or gets from the way that it computes them."""

KINDS = {
    "scans": SCANS,
    "orders": ORDERS,
    "folds": FOLDS,
    "norms": NORMS,
    "distances": DISTANCES,
}


def samples(kind: str, dtype: torch.dtype) -> Iterator[tuple[str, Sample]]:
    for name, function in KINDS[kind].items():
        _, is_open = UNDETERMINED.get(name, ("", lambda _row: False))
        for title, row in ROWS.items():
            if is_open(row):
                continue
            rows = torch.tensor([row, row[::-1]], dtype=dtype)
            yield f"{name} of {title}", Sample(function, ((rows,), {}))


AT_ONCE = 48


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_ties_and_without_numbers_are_as_in_pytorch(
    kind: str, dtype: torch.dtype
) -> None:
    wrong = []
    given = list(samples(kind, dtype))
    for start in range(0, len(given), AT_ONCE):
        names, some = zip(*given[start : start + AT_ONCE], strict=True)
        verdicts = judge("rows", some, evaluate_in_step)
        wrong += [
            f"{name}: {status.value}: {reason}"
            for name, (status, reason) in zip(names, verdicts, strict=True)
            if status in (Status.DIFFERENT, Status.CRASHED)
        ]
    assert not wrong, "\n".join(wrong)
