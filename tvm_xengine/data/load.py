"""One entry point for every kind of training data."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np

from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.value_range import ValueRange

_logger = logging.getLogger(__name__)

DIGITS = "digits"


@dataclass(frozen=True)
class Wanted:
    """What the step reads: names, shapes with the batch axis, and types of inputs and targets.

    Attributes
    ----------
    ranges
        Allowed values of integers, such as labels and tokens, by name.
    hint
        What to do where the shape of a target does not fit.
    """

    inputs: Mapping[str, tuple[tuple[int, ...], str]]
    targets: Mapping[str, tuple[tuple[int, ...], str]]
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    hint: str = ""

    @property
    def batch(self) -> int:
        """Samples that a step reads."""
        return next(iter(self.inputs.values()))[0][0]

    def of(self, name: str) -> tuple[tuple[int, ...], str]:
        """Shape and type of an input or target."""
        return self.inputs[name] if name in self.inputs else self.targets[name]

    def is_joined(self, name: str) -> bool:
        """Whether a batch joins what several entries of each sample are."""
        leading = self.of(name)[0][0]
        return name in self.targets and leading != self.batch and leading % self.batch == 0

    def of_sample(self, name: str) -> tuple[int, ...]:
        """Shape of a sample."""
        leading, *rest = self.of(name)[0]
        return (leading // self.batch, *rest) if self.is_joined(name) else tuple(rest)


def load_data(source: str, wanted: Wanted, classes: Sequence[str] = ()) -> Data:
    """The data that `source` names, by the names of the step's inputs and targets.

    Parameters
    ----------
    source
        ``digits``, a ``.npz`` file, a folder of images, or ``package.module:function``.
    classes
        Of the training samples, by whose numbers a folder of images is labelled.

    Raises
    ------
    InvalidDataError
        If it is none of these, or does not fit what is wanted.
    """
    path = Path(source)
    if source == DIGITS:
        data = _digits(wanted)
    elif path.is_dir():
        data = _images(path, wanted, classes)
    elif path.suffix.lower() == ".npz":
        from tvm_xengine.data.npz import declared_npz, read_npz

        # What does not fit is refused before gigabytes of it are read.
        _check_kinds(_named(declared_npz(path), wanted), wanted)
        data = read_npz(path)
    elif ":" in source and not path.exists():
        from tvm_xengine.data.function import call_data_function

        data = call_data_function(source)
    else:
        raise InvalidDataError(
            f"--data {source}: expected {DIGITS}, a .npz file, a folder of images, or"
            " package.module:function"
        )
    return _fitting(_named(data, wanted), wanted)


def _named(data: Data, wanted: Wanted) -> Data:
    return data.renamed(list(wanted.inputs), list(wanted.targets))


def _fitting(data: Data, wanted: Wanted) -> Data:
    """The data in the shapes and types that the step reads; other shapes and values are refused."""
    _check_kinds(data, wanted)
    converted: list[dict[str, Array]] = []
    for arrays in (data.train, data.validation):
        part = {}
        for name, array in arrays.items():
            shape, dtype = wanted.of(name)
            samples = array.reshape(len(array), *wanted.of_sample(name))
            if name in wanted.ranges and array.dtype.kind in "iub":
                allowed = wanted.ranges[name].of_samples(shape, wanted.batch)
                _check_range(data.source, name, samples, allowed)
            part[name] = _as_type(data.source, name, array, dtype).reshape(samples.shape)
        converted.append(part)
    joined = frozenset(name for name in wanted.targets if wanted.is_joined(name))
    return replace(data, train=converted[0], validation=converted[1], joined=joined)


def _check_kinds(data: Data, wanted: Wanted) -> None:
    """Refuse shapes and types that the step does not read, whatever the values are."""
    for arrays in (data.train, data.validation):
        for name, array in arrays.items():
            rest, dtype = wanted.of_sample(name), wanted.of(name)[1]
            flat = name in wanted.targets and prod(array.shape[1:]) == prod(rest)
            if array.shape[1:] != rest and not flat:
                hint = f"; {wanted.hint}" if wanted.hint and name in wanted.targets else ""
                raise InvalidDataError(
                    f"{data.source}: {name} has samples of shape {array.shape[1:]}, the model takes"
                    f" {rest}{hint}"
                )
            if array.dtype.kind in "SUOcMm":
                raise InvalidDataError(
                    f"{data.source}: {name} holds {array.dtype}, the model takes real numbers ({dtype})"
                )
            if dtype.startswith("int") and array.dtype.kind not in "iub":
                raise InvalidDataError(
                    f"{data.source}: {name} holds {array.dtype}, the model takes whole numbers ({dtype});"
                    f" convert them, as {name}.astype('{dtype}') does"
                )


def _as_type(source: str, name: str, array: Array, dtype: str) -> Array:
    """The array in a type; numbers that it does not hold are refused, and bytes are told."""
    if array.dtype == np.uint8 and dtype.startswith("float") and array.size and array.max() > 1:
        _logger.warning(
            "%s: %s holds bytes up to %s, which are taken as they are; to train with values from 0 to 1,"
            " divide them by 255",
            *(source, name, array.max()),
        )
    with np.errstate(over="ignore"):
        converted = array.astype(dtype, copy=False)
    if dtype.startswith("float") and array.dtype.kind == "f":
        lost = np.isinf(converted) & np.isfinite(array)
        if lost.any():
            place = tuple(int(k) for k in np.argwhere(lost)[0])
            raise InvalidDataError(
                f"{source}: {name} must have numbers that {dtype} can hold, got {array[place]:g} in"
                f" sample {place[0]}"
            )
    return converted


def _check_range(source: str, name: str, array: Array, allowed: ValueRange) -> None:
    """Refuse integers that the step cannot read, before it is planned."""
    if (place := allowed.first_outside(array)) is None:
        return
    classes = ValueRange(0, allowed.high, allowed.besides)
    from_one = allowed == classes and array.min() == 1 and array.max() == allowed.high + 1
    advice = "; they seem to count from 1: subtract 1" if from_one else ""
    part = f" at {place[1:]}" if allowed.parts is not None else ""
    raise InvalidDataError(
        f"{source}: {name} must be in {allowed.at(place)}{part}, got {array[place]} in sample"
        f" {place[0]}{advice}"
    )


def _digits(wanted: Wanted) -> Data:
    from tvm_xengine.data.digits import load_digit_masks, load_digit_tokens, load_digits

    if len(wanted.inputs) == len(wanted.targets) == 1:
        ((shape, dtype),) = wanted.inputs.values()
        ((labels, label_type),) = wanted.targets.values()
        whole = label_type.startswith("int")
        if len(shape) == 4 and "float" in dtype and whole:
            image = (shape[1], shape[2], shape[3])
            if prod(labels) == shape[0]:
                return load_digits(image)
            if labels == (shape[0], *shape[2:]):
                return load_digit_masks(image)
        if len(shape) == 2 and "int" in dtype and whole and prod(labels) == prod(shape):
            return load_digit_tokens(shape[1])
    raise InvalidDataError(
        "the digits feed one input, images (batch, channels, height, width) with a class for each image"
        " or pixel, or tokens (batch, length) with a class for each; the model takes"
        f" {_said(wanted.inputs)} and {_said(wanted.targets)}; give your own data with --data"
    )


def _images(path: Path, wanted: Wanted, classes: Sequence[str]) -> Data:
    from tvm_xengine.data.images import read_images

    shapes = [shape for shape, _ in wanted.inputs.values()]
    if len(shapes) != 1 or len(shapes[0]) != 4:
        raise InvalidDataError(
            f"{path}: a folder of images feeds one input (batch, channels, height, width); the model"
            f" takes {_said(wanted.inputs)}"
        )
    data = read_images(path, (shapes[0][1], shapes[0][2], shapes[0][3]), classes)
    counts = {wanted.ranges[name].high + 1 for name in wanted.targets if name in wanted.ranges}
    if counts and len(data.classes) < min(counts):
        _logger.warning(
            "%s: the model tells %s classes apart, and %s are here, numbered in the order of their names: %s",
            *(path, min(counts), len(data.classes), ", ".join(data.classes)),
        )
    return data


def _said(tensors: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in tensors.items())
