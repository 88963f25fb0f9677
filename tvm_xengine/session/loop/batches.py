"""Batches as a step takes them, and what of them counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm_xengine.errors import InvalidDataError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.metrics import returns_scalar
from tvm_xengine.model.source import as_array
from tvm_xengine.session.step import Step

_logger = logging.getLogger(__name__)


def batch_size_of(step: Step) -> int:
    """The leading dimension of the step's first input."""
    return int(step.executable.interface.given[step.batch_names[0]].shape[0])


def arguments_of(batch: Any) -> Sequence[Any]:
    """What a step is called with for a batch of a loader."""
    return tuple(batch) if isinstance(batch, list | tuple) else (batch,)


def leading(value: Any, count: int, size: int) -> Any:
    """What belongs to the first `count` of `size` samples, of tensors in a structure.

    Several entries of the first axis may belong to a sample, such as one for each of its tokens.
    """
    if isinstance(value, Mapping):
        return {name: leading(one, count, size) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(leading(one, count, size) for one in value)
    array = as_array(value)
    if not array.ndim:
        return array
    return array[: len(array) * count // size]


def whole_batches(
    batches: Iterable[tuple[Any, int]], evaluation: ForwardModel
) -> Iterator[tuple[Any, int]]:
    """All batches, but for a last one that is filled up, where the model returns one loss for a batch.

    Raises
    ------
    InvalidDataError
        If no batch is left.
    """
    if not returns_scalar(evaluation):
        yield from batches
        return
    size, are_none = evaluation.batch_size, True
    for batch, counted in batches:
        if counted == size:
            are_none = False
            yield batch, counted
        elif are_none:
            raise InvalidDataError(
                f"the model returns the loss of a batch of {size}, and there are {counted} samples to"
                " evaluate; give more, or export it for a smaller batch"
            )
        else:
            _logger.warning(
                "the last %d samples are not evaluated: the model returns the loss of a batch of %d",
                *(counted, size),
            )
