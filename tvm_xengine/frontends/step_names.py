"""Names of a model's tensors that a training step uses itself."""

from __future__ import annotations

import re
from collections.abc import Collection

_STEP_NAMES = re.compile(r"(lr|seed|step|labels)(_\d+)?")
"""What a training step calls its own inputs and state."""

OF_MODEL = "model_"
"""Stands before the names of a model's own tensors that are called so."""


def is_of_step(name: str) -> bool:
    """Whether a training step calls something of its own so."""
    return _STEP_NAMES.fullmatch(name) is not None


def step_name(name: str, names: Collection[str]) -> str:
    """What a step calls an input of the model: one such as ``labels``, which a step may have itself,
    is called ``model_labels``.
    """
    other = f"{OF_MODEL}{name}"
    return other if name not in names and other in names else name


def model_name(name: str) -> str:
    """What the model calls an input of the step."""
    plain = name.removeprefix(OF_MODEL)
    return plain if is_of_step(plain) else name
