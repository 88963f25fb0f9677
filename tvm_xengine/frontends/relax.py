"""Models that are Relax modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.types import Array

Values = Mapping[str, Array] | Sequence[Array]
"""Values of parameters: by name, or of the last ones in order."""

_PARAMS_ATTR = "params"
"""Where front ends of TVM leave the values of the last parameters, for ``detach_params``."""


def from_relax(
    mod: tvm.IRModule,
    params: Values | None = None,
    *,
    name: str = "model",
    trainable: Collection[str] | None = None,
) -> ForwardModel:
    """The forward model of a module with a Relax function ``main``.

    Parameters
    ----------
    params
        Values of parameters of ``main``; the other parameters are inputs. None takes those that a
        front end of TVM has left in the module.
    trainable
        Which of them may be trained; None takes all of a floating-point type.
    """
    found = [
        var.name_hint for var, func in mod.functions.items() if isinstance(func, relax.Function)
    ]
    if "main" not in found:
        raise UnsupportedModelError(f"expected a Relax function main, found {found}")
    declared = [param.name for param in mod["main"].params]
    given, params = params, values_by_name(mod["main"], params)
    if given is None and not params:
        raise UnsupportedModelError(
            f"main has no parameters to train: give the values of some of {', '.join(declared)} as"
            " `params`, or import the model with keep_params_as_input=True"
        )
    if unknown := [one for one in params if one not in declared]:
        raise UnsupportedModelError(
            f"main has no parameters {unknown}; it has {', '.join(sorted(declared))}"
        )
    if trainable is None:
        trainable = {one for one, value in params.items() if value.dtype.kind == "f"}
    return assemble(name, relax.transform.ConvertToDataflow()(mod), params, trainable)


def values_by_name(func: relax.Function, params: Values | None) -> dict[str, Array]:
    """Arrays for parameters of a function, by name."""
    if params is None:
        params = list(func.attrs.get(_PARAMS_ATTR, ())) if func.attrs else []
    if not isinstance(params, Mapping):
        last = func.params[len(func.params) - len(params) :]
        params = {var.name: value for var, value in zip(last, params, strict=True)}
    return {name: as_numpy(value) for name, value in params.items()}


def as_numpy(value: object) -> Array:
    """An array of what TVM, PyTorch or numpy hold."""
    value = value.detach() if hasattr(value, "detach") else value
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
