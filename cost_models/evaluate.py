"""Judge cost models on kernels they have not learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.boosted_trees import family_folds
from tvm_xengine.cost_models.dataset import RANDOM, Dataset
from tvm_xengine.cost_models.metrics import Metrics, metrics_of
from tvm_xengine.cost_models.model import CostModel, Prediction

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
    return _judge(data, *_predict_folds(model, data, split, on_fold))


def evaluate_by_source(model: CostModel, data: Dataset, split: str) -> dict[str, Metrics]:
    """Errors by the name of the model, and with those of each source apart where there are
    several."""
    rows, predicted = _predict_folds(model, data, split, None)
    result = {model.name: _judge(data, rows, predicted)}
    sources = np.array([data.sources[row] for row in rows])
    names = sorted(set(sources))
    for name in names if len(names) > 1 else ():
        mine = np.flatnonzero(sources == name)
        part = Prediction(predicted.time_us[mine], predicted.lo_us[mine], predicted.hi_us[mine])
        result[f"{model.name}, {name}"] = _judge(data, rows[mine], part)
    return result


def _predict_folds(
    model: CostModel, data: Dataset, split: str, on_fold: Callable[[int], None] | None
) -> tuple[NDArray[np.int_], Prediction]:
    """The rows that some fold tests, and what is predicted for them."""
    times = np.full((3, len(data)), np.nan)
    for number, (train, test) in enumerate(SPLITS[split](data), start=1):
        answer = model.fit(data.take(train)).predict(data.table.take(test))
        times[:, test] = answer.time_us, answer.lo_us, answer.hi_us
        if on_fold is not None:
            on_fold(number)
    rows = np.flatnonzero(np.isfinite(times[0]))
    return rows, Prediction(*times[:, rows])


def _judge(data: Dataset, rows: NDArray[np.int_], predicted: Prediction) -> Metrics:
    return metrics_of(
        data.time_us[rows],
        predicted.time_us,
        [data.families[row] for row in rows],
        (predicted.lo_us, predicted.hi_us),
    )


def _random_folds(data: Dataset) -> Folds:
    """Five folds; the same kernel on several devices stays together."""
    names = sorted(set(data.kernels))
    order = np.random.default_rng(0).permutation(len(names))
    fold_of = {names[k]: int(place) % _RANDOM_FOLDS for place, k in enumerate(order)}
    folds = np.array([fold_of[kernel] for kernel in data.kernels])
    for fold in range(_RANDOM_FOLDS):
        yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)


def _unusual_fold(data: Dataset) -> Folds:
    """Train on designed networks, test on random ones."""
    unusual = np.array([RANDOM in families for families in data.families])
    if unusual.any() and not unusual.all():
        yield np.flatnonzero(~unusual), np.flatnonzero(unusual)


def _size_fold(data: Dataset) -> Folds:
    """Train on the smaller kernels, test on the largest fifth."""
    limit = np.quantile(data.table.work, 1 - _LARGEST_RATIO)
    large = data.table.work > limit
    yield np.flatnonzero(~large), np.flatnonzero(large)


SPLITS: Mapping[str, Callable[[Dataset], Folds]] = {
    "random": _random_folds,
    "family": family_folds,
    "size": _size_fold,
    "unusual": _unusual_fold,
}
"""Ways to divide a dataset: at random, by network family, by size, into designed and random
networks."""
