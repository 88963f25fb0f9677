"""What a user asks for: frozen layers in int8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidDataError, UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.source import Source, as_array
from tvm_xengine.quantization.model import with_int8
from tvm_xengine.relax_ir.types import Array, static_shape


@checked_fields
@dataclass(frozen=True)
class Int8:
    """Frozen layers in int8: weights by output channel, activations by tensor, sums in int32.

    Attributes
    ----------
    calibration
        Samples that scales are found on: what the model takes, an array or a mapping by name, with any
        number of samples. None takes the scales that the model brings along.
    percentile
        Share of the elements, in percent, that the range of a tensor holds.
    behind
        Whether frozen layers behind a trained one keep their weights in int8, too. They compute in
        float32, since gradients pass through them.
    """

    calibration: Any = None
    percentile: float = 100.0
    behind: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.calibration, str | bytes | int | float):
            raise TypeError(
                f"expected samples for calibration, arrays or tensors, got {self.calibration!r}"
            )
        if not 50 < self.percentile <= 100:
            raise ValueError(f"expected a percentile above 50, up to 100, got {self.percentile}")


def with_frozen_int8(source: Source, options: Int8) -> Source:
    """The source with its frozen layers in int8, in training and in evaluation.

    Raises
    ------
    InvalidDataError
        If the samples do not fit the inputs.
    NoInt8LayerError
        If no layer can be int8.
    UnsupportedModelError
        If the loss is a part of the model, or it has no scales and no samples are given.
    """
    model = source.training
    if model.input_names != source.evaluation.input_names:
        raise UnsupportedModelError(
            "frozen layers can be int8 where the loss is named, not where the model returns it"
        )
    given = options.calibration
    batches = None if given is None else _batches(model, given)
    made = with_int8(model, batches, options.percentile, behind=options.behind)
    left = {role.variable for role in made.roles}
    dropped = {
        name: model.state[role.variable]
        for role in model.roles
        if role.variable not in left
        for name in role.names
    }
    return replace(source, training=made, evaluation=made, unused={**source.unused, **dropped})


def _batches(model: ForwardModel, given: Any) -> list[Mapping[str, Array]]:
    """The samples in batches of the model's size; the last one is filled up with its first sample."""
    names = model.input_names
    if not isinstance(given, Mapping):
        given = {names[0]: given} if len(names) == 1 else dict(zip(names, given, strict=False))
    if missing := [name for name in names if name not in given]:
        raise InvalidDataError(f"the samples for calibration lack {some(missing)}")
    samples = {}
    for param in model.main.params[: len(names)]:
        array, (_, *shape) = as_array(given[param.name]), static_shape(param.ty)
        if array.ndim < 1 or list(array.shape[1:]) != shape:
            raise InvalidDataError(
                f"calibration: {param.name} takes samples of shape {tuple(shape)}, got an array of"
                f" shape {array.shape}"
            )
        samples[param.name] = array.astype(str(param.ty.dtype), copy=False)
    if len({len(array) for array in samples.values()}) > 1:
        raise InvalidDataError("calibration: expected equally many samples of every input")
    size, count = model.batch_size, len(samples[names[0]])
    places = [
        [k if k < count else at for k in range(at, at + size)] for at in range(0, count, size)
    ]
    return [{name: array[chosen] for name, array in samples.items()} for chosen in places]
