"""No converter drops what an operator is given."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import torch

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.table import CONVERTERS

PLACEMENT = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"}
"""Where and how PyTorch stores a tensor; every tensor here lies compact on its device."""

WITHOUT_EFFECT = {
    "C": "the shape says it",
    "HxW": "the shape says it",
    "assume_unique": "a promise for speed",
    "check_errors": "what PyTorch would raise an error for is NaN here",
    "compute_mode": "how PyTorch computes it",
    "cudnn_enable": "a library of PyTorch's",
    "cudnn_enabled": "a library of PyTorch's",
    "driver": "the routine of a library that PyTorch calls",
    "generator": "the step has its own generator",
    "implicit": "how the call was written",
    "physical_layout": "how PyTorch stores it",
    "sorted": "results are always in order, which is allowed",
    "sparse": "the form of PyTorch's gradient",
    "sparse_grad": "the form of PyTorch's gradient",
    "stable": "sorting is always stable",
    "unsafe": "whether PyTorch checks the lengths",
}
"""Other arguments that change no value, and why."""

ONLY_OF = {
    "_native_batch_norm_legit.no_stats": {"training", "momentum"},
    "empty_strided.default": {"stride"},
    "max_unpool3d.default": {"stride", "padding"},
    "new_empty_strided.default": {"stride"},
}
"""Arguments that matter elsewhere: without statistics a batch norm has no momentum, and so on."""


def _overload(name: str) -> torch._ops.OpOverload | None:
    packet, _, overload = name.rpartition(".")
    found = getattr(torch.ops.aten, packet, None)
    return getattr(found, overload, None) if found is not None else None


def _ignored(name: str) -> list[str]:
    """The arguments of the operator that its converter takes and does not read."""
    schema = _overload(name)._schema
    convert, bound = CONVERTERS[name], 0
    while isinstance(convert, partial):
        bound += len(convert.args)
        convert = convert.func
    parameters = list(inspect.signature(convert).parameters.values())[bound + 1 :]
    ignored = []
    for position, argument in enumerate(schema.arguments):
        if position < len(parameters):
            parameter = parameters[position]
        else:
            assert parameters, f"{name}: the converter takes no {argument.name}"
            parameter = parameters[-1]
            assert parameter.kind is parameter.VAR_POSITIONAL, f"{name} takes no {argument.name}"
        if parameter.name.startswith("_"):
            ignored.append(argument.name)
    return ignored


def _is_refused(name: str) -> bool:
    """Whether the converter refuses every call: it takes any arguments and returns nothing."""
    parameters = list(inspect.signature(CONVERTERS[name]).parameters.values())
    if [parameter.kind for parameter in parameters] != [inspect.Parameter.VAR_POSITIONAL]:
        return False
    with pytest.raises(UnsupportedModelError):
        CONVERTERS[name]()
    return True


@pytest.mark.parametrize("name", [name for name in CONVERTERS if _overload(name) is not None])
def test_every_argument_is_read_or_has_no_effect(name: str) -> None:
    if _is_refused(name):
        return
    allowed = PLACEMENT | set(WITHOUT_EFFECT) | ONLY_OF.get(name, set())
    assert not set(_ignored(name)) - allowed
