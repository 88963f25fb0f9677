"""Samples of PyTorch's own databases of operators and modules.

They are modules without arguments of other kinds than tensors: every floating-point tensor of a
sample is a parameter, every other one an input.
"""

from __future__ import annotations

import functools
import importlib
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

SEED = 0
"""Both databases draw their samples at random."""

NOT_UNIQUE = ("linalg.eigh", "linalg.svd", "svd")
"""Operators whose vectors have any sign; the database says what of their results is determined."""

UNDEFINED = ("empty", "new_empty", "empty_like", "empty_permuted", "empty_strided")
"""Operators whose values are whatever the memory held."""


class Sample(nn.Module):
    """One call of an operator or module.

    Parameters
    ----------
    function
        Called with the sample's arguments.
    arguments
        Positional and keyword arguments, with tensors anywhere inside.
    """

    def __init__(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        super().__init__()
        if isinstance(function, nn.Module):
            self.module = function
        else:
            object.__setattr__(self, "function", function)
        leaves, self._tree = pytree.tree_flatten(arguments)
        self._leaves: list[object] = []
        self.inputs: list[torch.Tensor] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                self._leaves.append(leaf)
                continue
            own = leaf.detach().clone()
            if own.is_floating_point():
                name = f"tensor_{len(self._leaves)}"
                self.register_parameter(name, nn.Parameter(own))
                self._leaves.append(_Parameter(name))
            else:
                self._leaves.append(_Input(len(self.inputs)))
                self.inputs.append(own)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors that the call returns."""
        leaves = [self._leaf(leaf, inputs) for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        function = self.module if "module" in self._modules else self.function  # type: ignore[operator]
        made = function(*args, **kwargs)
        return tuple(one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor))

    def _leaf(self, leaf: object, inputs: Sequence[torch.Tensor]) -> object:
        match leaf:
            case _Parameter(name):
                return getattr(self, name)
            case _Input(position):
                return inputs[position]
            case _:
                return leaf


@dataclass(frozen=True)
class _Parameter:
    name: str


@dataclass(frozen=True)
class _Input:
    position: int


def operators() -> list[str]:
    """The names of all operators of ``op_db``."""
    return list(op_infos())


def modules() -> list[str]:
    """The names of all modules of ``module_db``, in training and in evaluation mode."""
    return [f"{name} ({mode})" for name in _module_infos() for mode in ("train", "eval")]


def operator_samples(name: str) -> Iterator[Sample]:
    """All samples of an operator, in float64 where it has that type."""
    info = op_infos()[name]
    dtype = _element_type(info.dtypes)
    needs_gradient = bool(info.supports_autograd and dtype.is_floating_point)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _seed()
        made = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    for one in made:
        function = info.op
        if name in NOT_UNIQUE:
            function = functools.partial(_determined, info.op, one.output_process_fn_grad)
        sample = Sample(function, ((one.input, *one.args), one.kwargs))
        yield sample.requires_grad_(needs_gradient)


def _determined(
    function: Callable[..., object],
    process: Callable[[object], object],
    *args: object,
    **kwargs: object,
) -> object:
    return process(function(*args, **kwargs))


def module_samples(name: str) -> Iterator[Sample]:
    """All samples of a module in one mode, in float64."""
    kind, _, mode = name.partition(" (")
    training = mode == "train)"
    info = _module_infos()[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _seed()
        made = info.module_inputs_func(
            info, "cpu", torch.float64, requires_grad=False, training=training
        )
        for one in made:
            given = one.constructor_input
            options = dict(given.kwargs)
            module = info.module_cls(*given.args, **options).to(torch.float64)
            call = one.forward_input
            yield Sample(module.train(training), (call.args, call.kwargs))


def _seed() -> None:
    """The samples are drawn by three generators."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    random.seed(SEED)


def _element_type(dtypes: Any) -> torch.dtype:
    preferred = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.int64,
        torch.bool,
        torch.complex128,
    )
    return next((dtype for dtype in preferred if dtype in dtypes), torch.float64)


@functools.cache
def op_infos() -> dict[str, Any]:
    """What PyTorch says of each operator, by name."""
    module = importlib.import_module("torch.testing._internal.common_methods_invocations")
    infos: dict[str, Any] = {}
    for info in module.op_db:
        infos.setdefault(info.full_name, info)
    return infos


@functools.cache
def _module_infos() -> dict[str, Any]:
    module = importlib.import_module("torch.testing._internal.common_modules")
    infos: dict[str, Any] = {}
    for info in module.module_db:
        infos.setdefault(info.module_cls.__name__, info)
    return infos
