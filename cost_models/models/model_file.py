"""A trained model as one file: a zip of a JSON document and one booster for each member."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

import tvm_xengine.cost_models.models
from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.cost_models.calibration.calibration import Calibration
from tvm_xengine.cost_models.dataset.dataset import TIR
from tvm_xengine.cost_models.features.added import missing_features, version_of
from tvm_xengine.cost_models.features.table import (
    FEATURE_SET,
    IS_LIBRARY,
    LIBRARY_VECTOR,
    FeatureTable,
)
from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor, Corrections
from tvm_xengine.cost_models.models.boosted_trees import BoostedTreesPredictor
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.models.processors import is_foreign, processor_of, processors_of
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.archives import DAMAGED_ZIP
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import parse_json

PRIOR_MODEL = Path(str(files(tvm_xengine.cost_models.models))) / "prior.costmodel"
"""Boosted trees on 22,960 kernels of a Rocket Lake, timed with hot caches. Their data is lost."""

_DOCUMENT = "model.json"
_DIGEST = "sha256"
"""SHA-256 of the document and the members, in this order: XGBoost crashes on members that changed."""

_MOST_BYTES = 1 << 30
"""A model of 5 members has 20 MB."""
_MOST_MEMBERS = 1000
"""Ensembles have about five."""

_UNREADABLE = (
    *(*DAMAGED_ZIP, TypeError, AttributeError, OverflowError, MemoryError),
    xgboost.core.XGBoostError,
)


TREES, ADAPTED = "trees", "adapted"
SCHEMAS = {TREES: 5, ADAPTED: 6}
"""Version of the document by the kind of its model, raised when a field is added or changes its meaning."""

_COMMON = ("feature_set", "feature_names", "disagreement_floor", "widths", "smearing")
_LIMITS = ("machine_limits", "caches_limits")

TimePredictor = BoostedTreesPredictor | AdaptedPredictor


@dataclass(frozen=True)
class ModelFile:
    """A model with its card.

    Attributes
    ----------
    architectures
        Kinds of processors whose kernels it has learned from, such as ``llvm x86_64``.
    sources
        Where those kernels came from: generated code, or libraries.
    card
        Data, metrics, noise floor and ranges, for people.
    xgboost
        Version that it was trained with.
    calibration
        Of this machine, which adapted models take into account; not in the file.
    """

    predictor: TimePredictor
    architectures: tuple[str, ...]
    sources: tuple[str, ...] = (TIR,)
    card: Mapping[str, Any] = field(default_factory=dict)
    xgboost: str = xgboost.__version__
    calibration: Calibration | None = None

    @property
    def processors(self) -> frozenset[str]:
        """Those whose kernels it has learned from; none where only baseline code was measured."""
        return processors_of(self.card.get("targets", ()))

    @property
    def known_machines(self) -> int:
        """How many machines it has learned from, at least one."""
        if isinstance(self.predictor, BoostedTreesPredictor):
            return max(1, len(self.processors))
        return self.predictor.known_machines

    def has_ground(self, table: FeatureTable) -> NDArray[np.bool_]:
        """False for calls of a library whose code has vectors as in hardly any label, (rows,)."""
        vectors = self.card.get("library_vectors_bytes")
        if vectors is None or LIBRARY_VECTOR not in table.names:
            return np.ones(len(table), dtype=np.bool_)
        is_known = np.isin(table.column(LIBRARY_VECTOR), vectors)
        return np.asarray(is_known | (table.column(IS_LIBRARY) == 0))

    def predict(self, table: FeatureTable, targets: Sequence[str]) -> Prediction:
        """Run times of kernels, each for a target (as JSON)."""
        if isinstance(self.predictor, BoostedTreesPredictor):
            return self.predictor.predict(table)
        shares = {target: self.share_on(target) for target in set(targets)}
        share = np.array([shares[target] for target in targets])
        processors = [processor_of(target) for target in targets]
        answer = self.predictor.predict(table, share, processors)
        here = self.calibrated_rows(targets)
        if self.calibration is None or not here:
            return answer
        known = self.calibration
        predictor = self.predictor.calibrated(known.factor, known.cold)
        part = predictor.predict(table.take(here), share[here])
        return answer.with_rows(here, part)

    def calibrated_rows(self, targets: Sequence[str]) -> list[int]:
        """Which of these targets (as JSON) `is_calibrated`."""
        calibrated = {target for target in set(targets) if self.is_calibrated(target)}
        return [row for row, target in enumerate(targets) if target in calibrated]

    def is_calibrated(self, target: str) -> bool:
        """Whether the processor of a target (as JSON) has no labels, and is the one that was calibrated.

        Hundreds of labels say more of a processor than a sweep of some minutes.
        """
        if self.calibration is None or not is_foreign(self.processors, target):
            return False
        return processor_of(target) == self.calibration.processor

    def share_on(self, target: str) -> float:
        """Of what the machines of the labels do differently, what a target's is expected to do."""
        if isinstance(self.predictor, BoostedTreesPredictor):
            return 0.0
        if not is_foreign(self.processors, target):
            return 1.0
        of_prior = processors_of(self.card.get("prior_targets", ()))
        return 0.0 if processor_of(target) in of_prior else self.predictor.share_elsewhere


def write_model(model: ModelFile, path: Path) -> None:
    """Write a model file, whole or not at all."""
    facts, boosters = _described(model.predictor)
    members = [bytes(booster.save_raw("ubj")) for booster in boosters]
    document = {
        "schema": SCHEMAS[facts["kind"]],
        **facts,
        "architectures": model.architectures,
        "sources": model.sources,
        "xgboost": model.xgboost,
        "card": model.card,
    }
    text = json.dumps(document, indent=1).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(zipfile.ZipInfo(_DOCUMENT), text)
        file.writestr(zipfile.ZipInfo(_DIGEST), _digest(text, members))
        for number, member in enumerate(members):
            entry = zipfile.ZipInfo(_member(number))
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, member)
    write_bytes_atomically(path, content.getvalue())


def read_model(path: Path) -> ModelFile:
    """Read a model file.

    Raises
    ------
    InvalidDatasetError
        When it cannot be read, or was trained on another version of the features, or from another
        prior than the one that is installed.
    """
    try:
        document, boosters = _read(path)
        model = ModelFile(
            _predictor(document, boosters, path),
            tuple(document["architectures"]),
            tuple(document["sources"]),
            dict(document["card"]),
            str(document["xgboost"]),
        )
        _ = model.processors  # refuses targets that are none
        return model
    except _UNREADABLE as error:
        raise InvalidDatasetError(
            f"{path}: expected a cost model written by tvm-xengine costs train: {error}"
        ) from error


@cache
def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def prior_predictor() -> BoostedTreesPredictor:
    """The prior that ships with the package."""
    predictor = read_model(PRIOR_MODEL).predictor
    if not isinstance(predictor, BoostedTreesPredictor):
        raise InvalidDatasetError(f"{PRIOR_MODEL}: expected boosted trees, found an adapted model")
    return predictor


def _read(path: Path) -> tuple[dict[str, Any], tuple[xgboost.Booster, ...]]:
    """The document and the members of a file whose content is what was written."""
    require_regular_file(path)
    with zipfile.ZipFile(path) as file:
        if sum(entry.file_size for entry in file.infolist()) > _MOST_BYTES:
            raise ValueError(f"its members unpack to more than {_MOST_BYTES} bytes")
        text = file.read(_DOCUMENT)
        document = parse_json(text.decode())
        if not isinstance(document, dict):
            raise ValueError(f"{_DOCUMENT} holds no object")
        _check_versions(document, path)
        count = sum(_counts(document))
        raw = [file.read(_member(member)) for member in range(count)]
        if file.read(_DIGEST) != _digest(text, raw):
            raise ValueError("its content is not what was written")
    return document, tuple(map(_booster, raw))


def _counts(document: Mapping[str, Any]) -> list[int]:
    """How many members each view has, in the order in which they are in the file."""
    if document.get("kind", TREES) == TREES:
        counts = [document["wholes"], document["parts"]]
    else:
        parts = (document["shared"], *document["own"].values())
        counts = [part[view] for part in parts for view in ("machine", "caches")]
    counts = [int(count) for count in counts]
    if not all(count >= 0 for count in counts) or sum(counts) > _MOST_MEMBERS:
        raise ValueError(f"{counts} members; expected at most {_MOST_MEMBERS}")
    return counts


def _check_versions(document: Mapping[str, Any], path: Path) -> None:
    found = (document["schema"], document["feature_set"])
    schema = SCHEMAS[document.get("kind", TREES)]
    if (found[0], version_of(found[1])) != (schema, FEATURE_SET):
        raise InvalidDatasetError(
            f"{path}: expected a model of schema {schema} on features {FEATURE_SET}, found"
            f" schema {found[0]} on {found[1]}; train it again with this version"
        )
    if missing := missing_features(found[1]):
        raise InvalidDatasetError(
            f"{path}: the model needs the cost feature {missing[0]!r}, which no installed"
            " package computes; install the package that adds it, or train the model again"
            " without it"
        )


def _described(
    predictor: TimePredictor,
) -> tuple[dict[str, Any], tuple[xgboost.Booster, ...]]:
    """What a document says of a predictor, and its members."""
    facts = {name: getattr(predictor, name) for name in _COMMON}
    if isinstance(predictor, AdaptedPredictor):
        parts = (predictor.shared, *predictor.own.values())
        facts |= {
            "kind": ADAPTED,
            "prior_digest": predictor.prior_digest,
            "processors": predictor.processors,
            "shared": _facts_of(predictor.shared),
            "own": {name: _facts_of(part) for name, part in predictor.own.items()},
        }
        return facts, tuple(each for part in parts for each in (*part.machine, *part.caches))
    facts |= {name: getattr(predictor, name) for name in ("rate_limits", "most_threads")}
    facts |= {"kind": TREES, "wholes": len(predictor.wholes), "parts": len(predictor.parts)}
    return facts, (*predictor.wholes, *predictor.parts)


def _facts_of(part: Corrections) -> dict[str, Any]:
    members = {"machine": len(part.machine), "caches": len(part.caches)}
    limits = {name: getattr(part, name) for name in _LIMITS}
    return {**members, **limits, "cold": asdict(part.cold)}


def _corrections(facts: Mapping[str, Any], boosters: Iterator[xgboost.Booster]) -> Corrections:
    """A part of an adapted model; its members are the next ones."""
    return Corrections(
        machine=tuple(islice(boosters, int(facts["machine"]))),
        caches=tuple(islice(boosters, int(facts["caches"]))),
        machine_limits=tuple(facts["machine_limits"]),
        caches_limits=tuple(facts["caches_limits"]),
        cold=ColdCalls(**facts["cold"]),
    )


def _predictor(
    document: Mapping[str, Any], boosters: tuple[xgboost.Booster, ...], path: Path
) -> TimePredictor:
    common: dict[str, Any] = {
        "feature_set": str(document["feature_set"]),
        "feature_names": tuple(document["feature_names"]),
        "disagreement_floor": float(document["disagreement_floor"]),
        "widths": tuple(document["widths"]),
        "smearing": tuple(document["smearing"]),
    }
    if document.get("kind", TREES) == TREES:
        return BoostedTreesPredictor(
            **common,
            wholes=boosters[: int(document["wholes"])],
            parts=boosters[int(document["wholes"]) :],
            rate_limits=tuple(document["rate_limits"]),
            most_threads=int(document["most_threads"]),
        )
    if document["prior_digest"] != digest_of(PRIOR_MODEL):
        raise InvalidDatasetError(
            f"{path}: expected a cost model that begins from the {PRIOR_MODEL.name} of this version,"
            " found one of another; train it again"
        )
    members = iter(boosters)
    return AdaptedPredictor(
        **common,
        prior=prior_predictor(),
        prior_digest=str(document["prior_digest"]),
        shared=_corrections(document["shared"], members),
        own={name: _corrections(part, members) for name, part in document["own"].items()},
        processors=tuple(map(str, document["processors"])),
    )


def _digest(document: bytes, members: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join((document, *members))).hexdigest().encode()


def _booster(content: bytes) -> xgboost.Booster:
    if not content.startswith(b"{") or not content.endswith(b"}"):
        raise ValueError("a member is cut off")  # which XGBoost would read for ever
    return xgboost.Booster(model_file=bytearray(content))


def _member(number: int) -> str:
    return f"member{number}.ubj"
