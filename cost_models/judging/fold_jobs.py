"""Held-out folds as jobs: in several processes, and each kept on disk as soon as it is done."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from loky import ProcessPoolExecutor
from numpy.typing import NDArray

from tvm_xengine.checks.packages import installed_version
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor
from tvm_xengine.cost_models.models.model import CostModel, Prediction
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.append_only import AppendOnlyFile

_LEARNERS = ("numpy", "scikit-learn", "scipy", "xgboost")
"""Packages that have a say in what a model learns."""

_MODELS = Path(__file__).parent.parent / "models"
"""The code of this package's models."""

PROCESSOR = "processor"
"""The split whose models know no label of the processor that they are asked about."""

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class FoldJob:
    """A model learns from some rows, and is asked about others.

    Attributes
    ----------
    split
        What the rows are held out by, for people.
    """

    model: CostModel
    split: str
    train: Rows
    test: Rows

    def answer(self, data: Dataset) -> Prediction:
        """What the model predicts for the rows that are held out.

        Raises
        ------
        InvalidDatasetError
            When the model fails, or does not answer with a time and an interval for each row.
        """
        asked = data.take(self.test)
        try:
            fitted = self.model.fit(data.take(self.train))
            if isinstance(fitted, AdaptedPredictor):
                fitted = fitted.on(asked.processors)
            found = fitted.predict(asked.table)
            times = np.array([found.time_us, found.lo_us, found.hi_us], dtype=np.float64)
        except Exception as error:  # whatever a model of another package raises
            raise InvalidDatasetError(
                f"the cost model {self.model.name!r} fails on the split {self.split}: {error!r}"
            ) from error
        if times.shape != (3, len(asked)) or not (np.isfinite(times) & (times >= 0)).all():
            raise InvalidDatasetError(
                f"the cost model {self.model.name!r}: expected {len(asked)} finite times >= 0 with both"
                f" ends of their intervals on the split {self.split}, got an array {times.shape}"
            )
        return Prediction(*times)


class FoldStore:
    """Answers in a file that is only ever appended to, by all that they depend on.

    Parameters
    ----------
    path
        None keeps them in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = None if path is None else AppendOnlyFile(path)
        self._known: dict[str, Prediction] = {}
        for key, answer in () if self._file is None else self._file.read(_parse):
            self._known[key] = answer

    def find(self, key: str) -> Prediction | None:
        """The answer to a job, None where it was not done."""
        return self._known.get(key)

    def add(self, key: str, answer: Prediction) -> None:
        """Remember an answer here and on disk."""
        self._known[key] = answer
        if self._file is not None:
            columns = {n: getattr(answer, n).tolist() for n in ("time_us", "lo_us", "hi_us")}
            self._file.append({"key": key, **columns})


def answers(
    jobs: Sequence[FoldJob],
    data: Dataset,
    store: FoldStore,
    processes: int = 1,
    on_done: Callable[[int, int, str], None] | None = None,
) -> list[Prediction]:
    """The answer to each job, from the store where it has one.

    An interrupt loses the jobs that are being done, and a second call goes on behind it.

    Parameters
    ----------
    processes
        One computes in this process.
    on_done
        Called after each job with the number done, the number of all and what it was.

    Raises
    ------
    InvalidDatasetError
        As of `FoldJob.answer`, or when a process dies.
    """
    keys = _keys(jobs, data)
    open_jobs = [number for number, key in enumerate(keys) if store.find(key) is None]
    done = len(jobs) - len(open_jobs)
    for number, answer in _computed(open_jobs, jobs, data, processes):
        store.add(keys[number], answer)
        done += 1
        if on_done is not None:
            on_done(done, len(jobs), f"{jobs[number].split}: {jobs[number].model.name}")
    found = [store.find(key) for key in keys]
    return [answer for answer in found if answer is not None]


def _computed(
    numbers: Sequence[int], jobs: Sequence[FoldJob], data: Dataset, processes: int
) -> Iterable[tuple[int, Prediction]]:
    """Answers to these jobs, as they come."""
    if processes == 1 or len(numbers) < 2:
        yield from ((number, jobs[number].answer(data)) for number in numbers)
        return
    executor = ProcessPoolExecutor(processes)
    try:
        running: dict[Future[Prediction], int] = {
            executor.submit(FoldJob.answer, jobs[number], data): number for number in numbers
        }
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BrokenExecutor as error:
        raise InvalidDatasetError(
            "a process that judged cost models died, which a lack of memory may cause; what is done is"
            " kept, so run the command again"
        ) from error
    finally:
        executor.shutdown(wait=True, kill_workers=True)


def _keys(jobs: Sequence[FoldJob], data: Dataset) -> list[str]:
    """Of all that an answer depends on: data, rows, the model, its code and what it learns with."""
    common = hashlib.sha256()
    for column in (data.table.values, data.table.work, data.time_us, data.hot_us, data.noise_ratio):
        common.update(np.ascontiguousarray(column).tobytes())
    facts = (data.table.names, data.families, data.sources, data.processors, learners(), _code())
    common.update(repr(facts).encode())
    keys = []
    for job in jobs:
        own = common.copy()
        own.update(f"{type(job.model)} {job.model!r} {_source_of(type(job.model))}".encode())
        for rows in (job.train, job.test):
            own.update(np.asarray(rows, dtype=np.int64).tobytes() + b";")
        keys.append(own.hexdigest()[:32])
    return keys


def _code() -> str:
    """Hash of the code of this package's models, and of the model that they begin from."""
    content = b"".join(path.read_bytes() for path in sorted(_MODELS.glob("*.*")) if path.is_file())
    return hashlib.sha256(content).hexdigest()


def _source_of(model: type) -> str:
    """The code of the module that a model is written in, empty where it has no file."""
    # Not by `inspect.getfile`: TVM replaces it, and its own one fails where the module is not known.
    file = getattr(sys.modules.get(model.__module__), "__file__", None)
    try:
        return "" if file is None else Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def learners() -> Mapping[str, str]:
    """The versions of the packages that models learn with."""
    found = {package: installed_version(package) for package in _LEARNERS}
    return {package: version for package, version in found.items() if version is not None}


def _parse(row: dict[str, object]) -> tuple[str, Prediction]:
    columns = [np.array(row[name], dtype=np.float64) for name in ("time_us", "lo_us", "hi_us")]
    return str(row["key"]), Prediction(*columns)
