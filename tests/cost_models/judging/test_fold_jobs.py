"""Folds are computed once, by as many processes as there are, and survive an interrupt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.judging.evaluate import SPLITS
from tvm_xengine.cost_models.judging.fold_jobs import FoldJob, FoldStore, answers
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.errors import InvalidDatasetError

DATA = synthetic(80)


@dataclass(frozen=True)
class Marking:
    """Writes a line to a file each time that it learns."""

    path: Path
    time_us: float = 1.0
    name: str = "marking"

    def fit(self, data):
        with self.path.open("a") as file:
            file.write("fit\n")
        return self

    def predict(self, table):
        times = np.full(len(table), self.time_us)
        return Prediction(times, times / 2, times * 2)

    def count(self) -> int:
        return len(self.path.read_text().splitlines())


def jobs_of(*models):
    return [FoldJob(m, "random", *fold) for m in models for fold in SPLITS["random"](DATA)]


def test_what_is_on_disk_is_not_computed_again(tmp_path):
    model, path = Marking(tmp_path / "fits"), tmp_path / "folds.jsonl"
    first = answers(jobs_of(model)[:3], DATA, FoldStore(path))
    again = answers(jobs_of(model), DATA, FoldStore(path))
    assert model.count() == 5
    np.testing.assert_array_equal(first[0].time_us, again[0].time_us)


def test_an_interrupt_keeps_what_was_done(tmp_path):
    model, path = Marking(tmp_path / "fits"), tmp_path / "folds.jsonl"

    def interrupt(done: int, _total: int, _what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answers(jobs_of(model), DATA, FoldStore(path), on_done=interrupt)
    answers(jobs_of(model), DATA, FoldStore(path))
    assert model.count() == 5


@pytest.mark.parametrize(
    "changed",
    [
        lambda model: (replace(model, name="other"), DATA),
        lambda model: (model, replace(DATA, time_us=1.01 * DATA.time_us)),
    ],
    ids=["model", "labels"],
)
def test_another_model_or_other_labels_are_computed(changed, tmp_path):
    model, path = Marking(tmp_path / "fits"), tmp_path / "folds.jsonl"
    answers(jobs_of(model), DATA, FoldStore(path))
    other, data = changed(model)
    answers(jobs_of(other), data, FoldStore(path))
    assert model.count() == 10


@pytest.mark.slow
def test_two_processes_answer_as_one():
    jobs = jobs_of(LogLinear(), NearestNeighbours())
    alone = answers(jobs, DATA, FoldStore())
    told: list[tuple[int, int]] = []
    together = answers(jobs, DATA, FoldStore(), 2, lambda done, of, _: told.append((done, of)))
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.time_us, two.time_us)
    assert told == [(k, 10) for k in range(1, 11)]


@pytest.mark.parametrize("time_us", [np.nan, -1.0])
def test_a_model_that_answers_nonsense_is_named(time_us, tmp_path):
    model = Marking(tmp_path / "fits", time_us)
    with pytest.raises(InvalidDatasetError, match=r"'marking'.*random"):
        answers(jobs_of(model), DATA, FoldStore())
