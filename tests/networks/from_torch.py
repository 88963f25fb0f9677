"""Networks written with torch, through torch.export."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

from tests.networks.network import Network, Pair, Setting, Subject
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.torch.read import from_torch_export

ModuleOfSize = Callable[["int | None"], nn.Module]
"""Builds a module for images or sequences of a size."""


def torch_network(
    name: str,
    source: str,
    module: ModuleOfSize,
    example: tuple[int, ...],
    full: Pair,
    checked: Pair,
    *,
    vocabulary: int | None = None,
) -> Network:
    """The entry of a module.

    Parameters
    ----------
    example
        Shape of one example, each -1 standing for the size.
    """

    def inputs(setting: Setting, dtype: torch.dtype) -> torch.Tensor:
        shape = (setting.batch, *(setting.size if axis == -1 else axis for axis in example))
        if vocabulary is not None:
            return torch.randint(0, vocabulary, shape)
        return torch.randn(shape, dtype=dtype)

    def built(setting: Setting) -> nn.Module:
        torch.manual_seed(0)
        return module(setting.size).train()

    def exported(module: nn.Module, setting: Setting, dtype: torch.dtype) -> ForwardModel:
        with warnings.catch_warnings():
            # Recurrent modules warn about the attributes they keep their weights in.
            warnings.simplefilter("ignore")
            program = torch.export.export(module, (inputs(setting, dtype),))
        return from_torch_export(program, name=name)

    def published(setting: Setting) -> ForwardModel:
        return exported(built(setting), setting, torch.float32)

    def subject(setting: Setting, dtype: torch.dtype) -> Subject:
        still = _without_dropout(built(setting)).to(dtype)
        model = exported(still, setting, dtype)
        parameters = {identifier(path): leaf for path, leaf in still.named_parameters()}
        return Subject(model, parameters, still)

    return Network(name, source, published, subject, Setting(*full), Setting(*checked), vocabulary)


def _without_dropout(module: nn.Module) -> nn.Module:
    """Torch draws other random numbers than we do, so nothing may be dropped where they are compared."""
    for part in module.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth"):
            part.p = 0.0
    return module
