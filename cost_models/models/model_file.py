"""A trained model as one file: a zip of a JSON document and one booster for each member."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xgboost

from tvm_xengine.cost_models.dataset.dataset import TIR
from tvm_xengine.cost_models.features.added import missing_features, version_of
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.models.boosted_trees import BoostedTreesPredictor
from tvm_xengine.cost_models.models.processors import processors_of
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.archives import DAMAGED_ZIP
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.read_text import parse_json

SCHEMA = 5
"""Version of the document, raised when a field is added or changes its meaning."""
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
    """

    predictor: BoostedTreesPredictor
    architectures: tuple[str, ...]
    sources: tuple[str, ...] = (TIR,)
    card: Mapping[str, Any] = field(default_factory=dict)

    @property
    def processors(self) -> frozenset[str]:
        """Those whose kernels it has learned from; none where only baseline code was measured."""
        return processors_of(self.card.get("targets", ()))


def write_model(model: ModelFile, path: Path) -> None:
    """Write a model file, whole or not at all."""
    predictor = model.predictor
    members = [bytes(b.save_raw("ubj")) for b in (*predictor.wholes, *predictor.parts)]
    document = {
        "schema": SCHEMA,
        "feature_set": predictor.feature_set,
        "feature_names": predictor.feature_names,
        "wholes": len(predictor.wholes),
        "parts": len(predictor.parts),
        "rate_limits": predictor.rate_limits,
        "disagreement_floor": predictor.disagreement_floor,
        "widths": predictor.widths,
        "smearing": predictor.smearing,
        "most_threads": predictor.most_threads,
        "architectures": model.architectures,
        "sources": model.sources,
        "xgboost": xgboost.__version__,
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
        When it cannot be read, or was trained on another version of the features.
    """
    try:
        with zipfile.ZipFile(path) as file:
            document, raw = _read_parts(file, path)
        predictor = _predictor(document, tuple(map(_booster, raw)))
        model = ModelFile(
            predictor,
            tuple(document["architectures"]),
            tuple(document["sources"]),
            dict(document["card"]),
        )
        _ = model.processors  # refuses targets that are none
        return model
    except _UNREADABLE as error:
        raise InvalidDatasetError(
            f"{path}: expected a cost model written by tvm-xengine costs train: {error}"
        ) from error


def _read_parts(file: zipfile.ZipFile, path: Path) -> tuple[dict[str, Any], list[bytes]]:
    """The document of a model file, and the contents of its members."""
    if sum(entry.file_size for entry in file.infolist()) > _MOST_BYTES:
        raise ValueError(f"its members unpack to more than {_MOST_BYTES} bytes")
    text = file.read(_DOCUMENT)
    document = parse_json(text.decode())
    if not isinstance(document, dict):
        raise ValueError(f"{_DOCUMENT} holds no object")
    found = (document["schema"], document["feature_set"])
    if (found[0], version_of(found[1])) != (SCHEMA, FEATURE_SET):
        raise InvalidDatasetError(
            f"{path}: expected a model of schema {SCHEMA} on features {FEATURE_SET}, found"
            f" schema {found[0]} on {found[1]}; train it again with this version"
        )
    if missing := missing_features(found[1]):
        raise InvalidDatasetError(
            f"{path}: the model needs the cost feature {missing[0]!r}, which no installed"
            " package computes; install the package that adds it, or train the model again"
            " without it"
        )
    wholes, parts = int(document["wholes"]), int(document["parts"])
    if not (0 <= wholes <= _MOST_MEMBERS and 0 <= parts <= _MOST_MEMBERS):
        raise ValueError(f"{wholes} and {parts} members; expected at most {_MOST_MEMBERS}")
    raw = [file.read(_member(member)) for member in range(wholes + parts)]
    if file.read(_DIGEST) != _digest(text, raw):
        raise ValueError("its content is not what was written")
    return document, raw


def _predictor(
    document: dict[str, Any], boosters: tuple[xgboost.Booster, ...]
) -> BoostedTreesPredictor:
    wholes = int(document["wholes"])
    return BoostedTreesPredictor(
        feature_set=document["feature_set"],
        feature_names=tuple(document["feature_names"]),
        wholes=boosters[:wholes],
        parts=boosters[wholes:],
        rate_limits=tuple(document["rate_limits"]),
        disagreement_floor=float(document["disagreement_floor"]),
        widths=tuple(document["widths"]),
        smearing=tuple(document["smearing"]),
        most_threads=int(document["most_threads"]),
    )


def _digest(document: bytes, members: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join((document, *members))).hexdigest().encode()


def _booster(content: bytes) -> xgboost.Booster:
    if not content.startswith(b"{") or not content.endswith(b"}"):
        raise ValueError("a member is cut off")  # which XGBoost would read for ever
    return xgboost.Booster(model_file=bytearray(content))


def _member(number: int) -> str:
    return f"member{number}.ubj"
