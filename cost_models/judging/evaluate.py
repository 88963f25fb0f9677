"""Evaluation of cost models on kernels they have not learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import RANDOM, Dataset
from tvm_xengine.cost_models.judging.fold_jobs import PROCESSOR, FoldJob, FoldStore, answers
from tvm_xengine.cost_models.judging.metrics import Metrics, metrics_of
from tvm_xengine.cost_models.models.boosted_trees import family_folds
from tvm_xengine.cost_models.models.model import CostModel, Prediction

Folds = Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]

_RANDOM_FOLDS = 5
"""Five, as is usual for cross-validation."""

_LARGEST_RATIO = 0.2
"""Share of the kernels, those with most work, that are held out to judge extrapolation."""


@dataclass(frozen=True)
class HeldOut:
    """Kernels that were not learned from, and what was predicted for them."""

    data: Dataset
    predicted: Prediction

    def metrics(self) -> Metrics:
        """Errors over all of them."""
        interval = (self.predicted.lo_us, self.predicted.hi_us)
        families = self.data.families
        return metrics_of(self.data.time_us, self.predicted.time_us, families, interval)

    def by_source(self) -> dict[str, Metrics]:
        """Errors of generated kernels, and of each library's; empty where there is one source."""
        names = sorted(set(self.data.sources))
        return {
            name: self._take([source == name for source in self.data.sources]).metrics()
            for name in names
            if len(names) > 1
        }

    def by_family(self) -> dict[str, Metrics]:
        """Errors of each network family; a kernel counts in all that have it."""
        found = {}
        for family in self.data.all_families():
            mine = self._take([family in names for names in self.data.families])
            alone = replace(mine.data, families=((family,),) * len(mine.data))
            found[family] = replace(mine, data=alone).metrics()
        return found

    def _take(self, mask: Sequence[bool]) -> HeldOut:
        rows = np.flatnonzero(mask)
        p = self.predicted
        part = Prediction(p.time_us[rows], p.lo_us[rows], p.hi_us[rows])
        return HeldOut(self.data.take(rows), part)


def evaluate(
    model: CostModel,
    data: Dataset,
    split: str,
    on_fold: Callable[[int, int, str], None] | None = None,
) -> Metrics:
    """Errors of a model over all folds of a split; parameters as of :func:`hold_out`."""
    return hold_out(model, data, split, on_fold).metrics()


def hold_out(
    model: CostModel,
    data: Dataset,
    split: str,
    on_fold: Callable[[int, int, str], None] | None = None,
) -> HeldOut:
    """What a model predicts for the kernels that the folds of a split test.

    Parameters
    ----------
    split
        A key of `SPLITS`.
    on_fold
        Called after each fold with the number of folds done, the number of all and what it was.
    """
    jobs = [FoldJob(model, split, *fold) for fold in SPLITS[split](data)]
    found = answers(jobs, data, FoldStore(), on_done=on_fold)
    return held_out_of(data, [(job.test, a) for job, a in zip(jobs, found, strict=True)])


def held_out_of(data: Dataset, tested: Iterable[tuple[NDArray[np.intp], Prediction]]) -> HeldOut:
    """The rows of all folds together, each with what was predicted for it."""
    times = np.full((3, len(data)), np.nan)
    for test, answer in tested:
        times[:, test] = answer.time_us, answer.lo_us, answer.hi_us
    rows = np.flatnonzero(np.isfinite(times[0]))
    return HeldOut(data.take(rows), Prediction(*times[:, rows]))


def _random_folds(data: Dataset) -> Folds:
    """Five folds by hash: a kernel stays in its fold when the dataset grows, on every device."""
    folds = np.array([int(kernel, 16) % _RANDOM_FOLDS for kernel in data.kernels])
    for fold in range(_RANDOM_FOLDS):
        if (folds == fold).any() and (folds != fold).any():
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)


def _each_in_turn(labels: Sequence[str]) -> Folds:
    """Train on all others; nothing where all are alike."""
    found = np.array(labels)
    for label in sorted(set(labels)) if len(set(labels)) > 1 else ():
        yield np.flatnonzero(found != label), np.flatnonzero(found == label)


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
    "source": lambda data: _each_in_turn(data.sources),
    PROCESSOR: lambda data: _each_in_turn(data.processors),
}
"""Ways to divide a dataset: at random, by network family, by size, into designed and random networks, by
where kernels come from, and by processor."""
