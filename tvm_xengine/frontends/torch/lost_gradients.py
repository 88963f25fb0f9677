"""What changes gradients in PyTorch and is not part of an exported program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

_OF_HOOKS = "BackwardHookFunction"
"""By what a module with backward hooks calls them; the module itself is named."""


@contextmanager
def lost_gradients(module: nn.Module, prefix: str = "") -> Iterator[list[str]]:
    """A list that gets a sentence for each thing whose effect on gradients the export loses.

    ``torch.inference_mode`` is entered as ``torch.no_grad``, which the export follows.

    Parameters
    ----------
    module
        The hooks of its parameters and of its submodules are looked for.
    prefix
        Left out of names.
    """
    found = _hooked(module, prefix)
    functions: set[str] = set()
    hooked_tensors: list[torch.Tensor] = []
    apply_as_usual = torch.autograd.Function.__dict__["apply"]
    register_as_usual = torch.Tensor.register_hook

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        functions.add(cls.__name__)
        return apply_as_usual.__get__(None, cls)(*args, **kwargs)

    def register(tensor: torch.Tensor, hook: Any) -> Any:
        hooked_tensors.append(tensor)
        return register_as_usual(tensor, hook)

    with (
        mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)),
        mock.patch.object(torch.Tensor, "register_hook", register),
        mock.patch.multiple(torch.inference_mode, __enter__=_enter, __exit__=_leave),
    ):
        yield found
    found += [
        f"the backward of {one} (a torch.autograd.Function) is lost by torch.export; the derivative"
        " of its forward is used"
        for one in sorted(functions - {_OF_HOOKS})
    ]
    if hooked_tensors:
        found.append(
            "the hooks that forward registers on tensors are lost by torch.export; gradients are those"
            " without them"
        )


def _enter(mode: Any) -> None:
    mode.in_place_of_inference = torch.set_grad_enabled(not mode.mode)


def _leave(mode: Any, *raised: object) -> None:
    mode.in_place_of_inference.__exit__(*raised)


def _hooked(module: nn.Module, prefix: str) -> list[str]:
    """A sentence for each parameter and submodule with hooks on gradients."""
    parameters = [
        name
        for name, one in module.named_parameters()
        if one._backward_hooks or one._post_accumulate_grad_hooks
    ]
    modules = [
        name
        for name, one in module.named_modules()
        if one._backward_hooks or one._backward_pre_hooks
    ]
    return [
        f"the hooks on the gradient of {name.removeprefix(prefix) or 'the module'} are lost by"
        " torch.export; its gradient is that without them"
        for name in (*parameters, *modules)
    ]
