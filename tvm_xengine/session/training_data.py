"""What a training step reads from its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvm_xengine.checks.arguments import checked
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.load import Wanted, load_data
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.model.losses import hint_of_axis
from tvm_xengine.model.training import Training
from tvm_xengine.relax_ir.types import static_shape


def wanted_data(training: Training) -> Wanted:
    """Names, shapes, types and ranges of the inputs and targets that a step reads from a batch."""
    step = training.step
    types = {param.name: param.ty for param in step.function.params}
    spec = {name: (static_shape(types[name]), str(types[name].dtype)) for name in step.batch_names}
    model = training.source.training
    inputs = model.input_names
    hint = "" if training.recipe is None else hint_of_axis(training.recipe.loss, model)
    return Wanted(
        {name: spec[name] for name in spec if name in inputs},
        {name: spec[name] for name in spec if name not in inputs},
        step.signature.ranges,
        hint,
    )


@checked
def training_data(
    training: Training, source: str, validation: str | float | None = None, *, seed: int = 0
) -> Data:
    """The data that `source` names, as the step reads it.

    Parameters
    ----------
    training
        Says which inputs and targets are read from a batch.
    source
        ``digits``, a ``.npz`` file, a folder of images, or ``package.module:function``.
    validation
        Share of the samples to hold out, or another source; None takes what the source holds.
    seed
        Of the samples that are held out.

    Raises
    ------
    InvalidDataError
        If a source does not exist, or does not fit the step.
    """
    wanted = wanted_data(training)
    data = load_data(source, wanted)
    share = _share(validation)
    if share is not None:
        data = data.with_validation(share, seed)
    elif validation is not None:
        other = load_data(str(validation), wanted, data.classes)
        data = replace(data, validation=other.train, validation_source=other.source)
    return data


def _share(validation: str | float | None) -> float | None:
    """The share that a text gives; None for a source.

    Raises
    ------
    InvalidDataError
        If the share is not between 0 and 1.
    """
    if validation is None or Path(str(validation)).exists():
        return None
    try:
        share = float(validation)
    except ValueError:
        if str(validation).rstrip().endswith("%"):
            raise InvalidDataError(
                f"expected a share such as 0.2, or a source of data, for validation, got {validation!r}"
            ) from None
        return None
    if not 0 < share < 1:
        raise InvalidDataError(
            f"expected a share of the samples above 0 and below 1 for validation, got {validation}"
        )
    return share
