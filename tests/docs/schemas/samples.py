"""Real files of the formats that are read, and whether a reader takes a document."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit
from safetensors.numpy import save

from tests.explain.plans import chain_plan
from tests.fuzz.readers import KINDS
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.errors import XEngineError
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.scheduling.problem import read_problem
from tvm_xengine.scheduling.schedule import read_schedule
from tvm_xengine.session.plans.plan_file import SavedPlan, read_plan, write_plan
from tvm_xengine.state.checkpoint import SCHEMA, Position, read_checkpoint

_MOST_ROWS = 2
"""Rows of a list that are damaged; the others have the same form."""
_OF_OTHER_KINDS: tuple[Any, ...] = (None, True, "text", -0.5, [[]], {"?": {}})
LOST = object()
"""Stands for a value that is taken away."""

Document = Any


@dataclass(frozen=True)
class Readable:
    """A format that is read.

    Attributes
    ----------
    write
        Makes a real file.
    read
        Its reader.
    load, dump
        Between the text of a file and its documents.
    """

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    load: Callable[[Path], list[Document]] = lambda path: [json.loads(path.read_text())]
    dump: Callable[[Document, Path], object] = lambda one, path: path.write_text(json.dumps(one))

    def takes(self, document: Document, folder: Path) -> bool:
        """Whether the reader takes a document, or line, without passing over anything."""
        path, said = folder / self.file, _Said()
        logger = logging.getLogger("tvm_xengine")
        logger.addHandler(said)
        level = logger.level
        logger.setLevel(logging.INFO)  # lines of an earlier version are no warning
        try:
            self.dump(document, path)
            self.read(path)
        except (XEngineError, ValueError, TypeError):  # TOML has no null
            return False
        finally:
            logger.removeHandler(said)
            logger.setLevel(level)
        return not any(" skipped" in text or " ignored" in text for text in said.texts)


class _Said(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _lines(path: Path) -> list[Document]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _line(document: Document, path: Path) -> None:
    path.write_text(json.dumps(document) + "\n")


def _write_plan(path: Path) -> None:
    write_plan(SavedPlan("", chain_plan(2, 0.9), {"k@cpu": "tir"}, 1, {"a0": ("out",)}), path)


def _write_checkpoint(path: Path) -> None:
    position = Position(7, 0.1, 1, 2, {"data": {"state": [1, 2]}})
    _dump_checkpoint({"schema": SCHEMA, **asdict(position)}, path)


def _dump_checkpoint(document: Document, path: Path) -> None:
    tensors = {"w": np.zeros(1, np.float32)}
    path.write_bytes(save(tensors, {"tvm_xengine": json.dumps(document)}))


def _load_checkpoint(path: Path) -> list[Document]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return [json.loads(file.metadata()["tvm_xengine"])]


READABLE: Mapping[str, Readable] = {
    "problem": Readable("problem.json", KINDS["problem"].write, read_problem),
    "schedule": Readable("schedule.json", KINDS["schedule"].write, read_schedule),
    "plan": Readable("plan.json", _write_plan, read_plan),
    "platform": Readable(
        "board.toml",
        KINDS["platform"].write,
        read_platform,
        lambda path: [tomlkit.parse(path.read_text()).unwrap()],
        lambda document, path: path.write_text(tomlkit.dumps(document)),
    ),
    "checkpoint": Readable(
        "run.ckpt", _write_checkpoint, read_checkpoint, _load_checkpoint, _dump_checkpoint
    ),
    "measurements": Readable(
        "measurements.jsonl", KINDS["measurements"].write, MeasurementCache, _lines, _line
    ),
    "kernels": Readable(
        "kernels.jsonl",
        KINDS["dataset"].write,
        lambda path: DatasetFolder(path.parent),
        _lines,
        _line,
    ),
    "tuned": Readable(
        "schedules.jsonl",
        KINDS["tuned schedules"].write,
        lambda path: TunedSchedules(path.parent),
        _lines,
        _line,
    ),
}
"""By the name of the schema."""


def damaged(document: Document) -> Iterator[tuple[str, Document]]:
    """The document with one fault in each: a key lost or added, a value of another kind."""
    for place in [(), *_places(document)]:
        if isinstance(_found(document, place), dict):
            yield f"{place} with '?'", _changed(document, (*place, "?"), 1)
        if not place:
            continue
        if isinstance(place[-1], str):
            yield f"{place} lost", _changed(document, place, LOST)
        for value in _OF_OTHER_KINDS:
            yield f"{place} = {value!r}", _changed(document, place, value)


Place = tuple[Any, ...]


def _places(document: Document, at: Place = ()) -> Iterator[Place]:
    items: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document[:_MOST_ROWS]))
    for key, value in items:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _found(document: Document, place: Place) -> Document:
    for key in place:
        document = document[key]
    return document


def _changed(document: Document, place: Place, value: object) -> Document:
    new = copy.deepcopy(document)
    above = _found(new, place[:-1])
    if value is LOST:
        del above[place[-1]]
    else:
        above[place[-1]] = value
    return new
