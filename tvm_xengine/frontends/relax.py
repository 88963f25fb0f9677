"""Models that are Relax modules already."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import assemble
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.types import Array


def from_relax(
    mod: tvm.IRModule,
    params: Mapping[str, Array],
    *,
    name: str = "model",
    trainable: Collection[str] | None = None,
) -> ForwardModel:
    """The forward model of a module with a Relax function ``main``.

    Parameters
    ----------
    params
        Values of parameters of ``main``, by name; the other parameters are inputs.
    trainable
        Which of them may be trained; None takes all of a floating-point type.
    """
    found = [
        var.name_hint for var, func in mod.functions.items() if isinstance(func, relax.Function)
    ]
    if "main" not in found:
        raise UnsupportedModelError(f"expected a Relax function main, found {found}")
    declared = {param.name for param in mod["main"].params}
    if unknown := [one for one in params if one not in declared]:
        raise UnsupportedModelError(
            f"main has no parameters {unknown}; it has {', '.join(sorted(declared))}"
        )
    if trainable is None:
        trainable = {one for one, value in params.items() if value.dtype.kind == "f"}
    return assemble(name, relax.transform.ConvertToDataflow()(mod), params, trainable)
