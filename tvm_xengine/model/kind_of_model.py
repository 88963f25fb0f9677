"""Which kind of model a user gives, and which options it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import tvm

from tvm_xengine.checks.names import meant
from tvm_xengine.model.source import Source


def is_module(model: object) -> bool:
    """Whether a model is a PyTorch module; PyTorch is not loaded to find out."""
    return any(
        kind.__module__ == "torch.nn.modules.module" and kind.__name__ == "Module"
        for kind in type(model).__mro__
    )


def check_options(
    model: object,
    example_inputs: object,
    options: Mapping[str, object],
    arguments: Iterable[str] = (),
) -> None:
    """Refuse options that a kind of model does not take.

    Parameters
    ----------
    arguments
        Names that may have been meant.
    """
    if isinstance(model, type):
        raise TypeError(f"expected a model, got the class {model.__name__}; give an instance of it")
    if example_inputs is not None and not is_module(model):
        raise TypeError(
            "example_inputs are for a PyTorch module, which an object of type"
            f" {type(model).__name__} is not; paths, names and exported programs bring their shapes"
        )
    if isinstance(model, str | Path):
        return  # the front ends know what each kind of file takes
    known = {"output"}
    if isinstance(model, tvm.IRModule):
        known = {"output", "params"}
    elif is_module(model) or isinstance(model, Source):
        known = set()
    if unused := sorted(set(options) - known):
        hint = meant(unused[0], arguments)
        raise TypeError(f"a {type(model).__name__} does not take {', '.join(unused)}{hint}")
