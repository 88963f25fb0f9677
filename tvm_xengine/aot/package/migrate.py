"""Checkpoints for a package, made on the host of tensors from another package or from training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.package.checkpoint_file import (
    TYPES,
    Checkpoint,
    hash_of,
    numpy_type,
    optimizer_tag,
)
from tvm_xengine.aot.package.contents import SCHEMA
from tvm_xengine.checks.documents import typed_value
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.files.read_text import parse_json, read_text
from tvm_xengine.training.saved_names import OF_MODEL, OF_SETTING

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Kept:
    """A tensor that a package keeps; `names` are those in checkpoints, its own first."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PackageState:
    """What the checkpoints of a package hold.

    Attributes
    ----------
    frozen
        Shape, type and `hash_of` each tensor of the model that lies in flash.
    frozen_hash
        `hash_of` all of them.
    settings
        Initial value of each setting, by its name in checkpoints.
    """

    kept: tuple[Kept, ...]
    frozen: Mapping[str, tuple[tuple[int, ...], str, int]]
    origin: int
    frozen_hash: int
    settings: Mapping[str, float]

    @property
    def optimizer(self) -> int:
        """The tag of its optimizer's slots."""
        return optimizer_tag(kept.names[0] for kept in self.kept)


def read_package_state(directory: Path) -> PackageState:
    """What the checkpoints of the package in a directory hold.

    Raises
    ------
    InvalidStateError
        If there is no package, or one of another version.
    """
    plans = sorted(directory.glob("*_plan.json"))
    if len(plans) != 1:
        raise InvalidStateError(
            f"{directory}: expected the folder of a package, with one file NAME_plan.json, found"
            f" {len(plans)}"
        )
    try:
        document: Any = parse_json(read_text(plans[0]))
        if document["schema"] != SCHEMA:
            raise InvalidStateError(
                f"{plans[0]}: expected schema {SCHEMA}, found {document['schema']}; export again"
            )
        return _package_state(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidStateError(f"{plans[0]} is no plan of a package: {error}") from error


def _package_state(document: Any) -> PackageState:
    kept = [
        Kept(typed_value(tuple[str, ...], row["saved_as"]), *_type_and_shape(row))
        for row in document["state"]
    ]
    given = typed_value(Mapping[str, float], document["settings"])
    settings = {f"{OF_SETTING}{name}": value for name, value in given.items()}
    kept += [Kept((name,), "float32", ()) for name in settings]
    if any(not one.names for one in kept):
        raise ValueError("a tensor of the state has no name in checkpoints")
    frozen = {}
    for name, row in document["frozen"].items():
        dtype, shape = _type_and_shape(row)
        frozen[str(name)] = (shape, dtype, int(row["hash"], 16))
    origin, frozen_hash = (int(document[key], 16) for key in ("origin", "frozen_hash"))
    return PackageState(tuple(kept), frozen, origin, frozen_hash, settings)


def _type_and_shape(row: Any) -> tuple[str, tuple[int, ...]]:
    dtype, shape = typed_value(str, row["dtype"]), typed_value(tuple[int, ...], row["shape"])
    if dtype not in TYPES or any(extent < 0 for extent in shape):
        raise ValueError(
            f"expected a type of {', '.join(TYPES)} and a shape, found {dtype} {shape}"
        )
    return dtype, shape


@dataclass(frozen=True)
class Migrated:
    """A checkpoint for another package.

    Attributes
    ----------
    absent
        What the package keeps and the checkpoint lacks; it initialises them.
    ignored
        What the package does not have.
    """

    checkpoint: Checkpoint
    absent: tuple[str, ...]
    ignored: tuple[str, ...]


def migrated(given: Checkpoint, package: PackageState, *, of_package: bool) -> Migrated:
    """`given` as a checkpoint of `package`, of which it takes what it has, with its types.

    Parameters
    ----------
    of_package
        Whether `given` comes from a package; else it has all tensors that were trained.

    Raises
    ------
    InvalidStateError
        If a tensor has another shape, a frozen one another value, or one of the model is absent.
    """
    values = {name: np.array(value, "float32") for name, value in package.settings.items()}
    given_names = tuple(given.tensors)
    given = replace(given, tensors={**values, **given.tensors})
    tensors: dict[str, Array] = {}
    used: set[str] = set()
    absent = []
    for kept in package.kept:
        is_own = kept.names[0].startswith(OF_MODEL)
        found = next((name for name in kept.names if name in given.tensors), None)
        if found is None or not (is_own or given.optimizer == package.optimizer):
            absent.append(kept.names[0])
            continue
        used.add(found)
        tensors[kept.names[0]] = _as_kept(given.tensors[found], kept)
    used |= {name for name in given.tensors if _is_same_frozen(name, given, package)}
    _check_origin(given, package, absent, of_package=of_package)
    checkpoint = replace(given, tensors=tensors, origin=package.origin, frozen=package.frozen_hash)
    ignored = tuple(name for name in given_names if name not in used)
    return Migrated(checkpoint, tuple(absent), ignored)


def _as_kept(value: Array, kept: Kept) -> Array:
    if value.shape != kept.shape:
        raise InvalidStateError(
            f"{kept.names[0]} has shape {value.shape}, the package's has {kept.shape}"
        )
    with np.errstate(over="ignore"):
        converted: Array = value.astype(numpy_type(kept.dtype))
    if np.any(_is_no_number(converted) & ~_is_no_number(value)):
        raise InvalidStateError(
            f"{kept.names[0]} has values that are too large for the package's {kept.dtype}"
        )
    if kept.names[0].startswith(OF_SETTING) and not 0 <= float(converted) < np.inf:
        raise InvalidStateError(
            f"{kept.names[0]} is {float(converted)}; a package takes none that is negative or not finite"
        )
    return converted


def _is_no_number(value: Array) -> NDArray[np.bool_]:
    """Where elements are NaN or infinite."""
    return ~np.isfinite(value.astype(np.float64))


def _is_same_frozen(name: str, given: Checkpoint, package: PackageState) -> bool:
    if name not in package.frozen:
        return False
    shape, dtype, wanted = package.frozen[name]
    value = given.tensors[name]
    if value.shape != shape or hash_of({"": value.astype(numpy_type(dtype))}) != wanted:
        raise InvalidStateError(
            f"{name} is frozen in the package, which has another value of it; export the package"
            " from these tensors"
        )
    return True


def _check_origin(
    given: Checkpoint, package: PackageState, absent: list[str], *, of_package: bool
) -> None:
    """Refuse to mix tensors of two models: see the rules of ``checkpoint_load``."""
    lacking = [name for name in absent if name.startswith(OF_MODEL)]
    unseen = [name for name in package.frozen if name not in given.tensors]
    if of_package and given.origin == package.origin:
        return
    if lacking:
        raise InvalidStateError(
            f"the package keeps {lacking[0]}, which is absent, and was not exported with the values"
            " that these tensors were trained from"
        )
    if of_package and unseen and given.frozen != package.frozen_hash:
        raise InvalidStateError(
            f"{unseen[0]} is frozen in the package, which was exported with other values than these"
            " tensors were trained with"
        )
