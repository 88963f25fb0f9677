"""Judge cost models on kernels they have not learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.boosted_trees import family_folds
from tvm_xengine.cost_models.dataset import Dataset
from tvm_xengine.cost_models.metrics import Metrics, metrics_of
from tvm_xengine.cost_models.model import CostModel

Folds = Iterator[tuple[NDArray[np.int_], NDArray[np.int_]]]

_RANDOM_FOLDS = 5
_LARGEST_RATIO = 0.2


def evaluate(
    model: CostModel,
    data: Dataset,
    split: str,
    on_fold: Callable[[int], None] | None = None,
) -> Metrics:
    """Errors of a model over all folds of a split.

    Parameters
    ----------
    split
        A key of `SPLITS`.
    on_fold
        Called after each fold with the number of folds done.
    """
    predicted, lo, hi = (np.full(len(data), np.nan) for _ in range(3))
    for number, (train, test) in enumerate(SPLITS[split](data), start=1):
        answer = model.fit(data.take(train)).predict(data.table.take(test))
        predicted[test], lo[test], hi[test] = answer.time_us, answer.lo_us, answer.hi_us
        if on_fold is not None:
            on_fold(number)
    rows = np.flatnonzero(np.isfinite(predicted))
    return metrics_of(
        data.time_us[rows],
        predicted[rows],
        [data.families[row] for row in rows],
        (lo[rows], hi[rows]),
    )


def _random_folds(data: Dataset) -> Folds:
    """Five folds; the same kernel on several devices stays together."""
    names = sorted(set(data.kernels))
    order = np.random.default_rng(0).permutation(len(names))
    fold_of = {names[k]: int(place) % _RANDOM_FOLDS for place, k in enumerate(order)}
    folds = np.array([fold_of[kernel] for kernel in data.kernels])
    for fold in range(_RANDOM_FOLDS):
        yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)


def _size_fold(data: Dataset) -> Folds:
    """Train on the smaller kernels, test on the largest fifth."""
    limit = np.quantile(data.table.work, 1 - _LARGEST_RATIO)
    large = data.table.work > limit
    yield np.flatnonzero(~large), np.flatnonzero(large)


SPLITS: Mapping[str, Callable[[Dataset], Folds]] = {
    "random": _random_folds,
    "family": family_folds,
    "size": _size_fold,
}
"""Ways to divide a dataset: at random, by network family, by size."""


def evaluate_all(
    models: Sequence[CostModel], data: Dataset, splits: Sequence[str]
) -> dict[tuple[str, str], Metrics]:
    """Errors by (name of the model, split)."""
    return {
        (model.name, split): evaluate(model, data, split) for split in splits for model in models
    }
