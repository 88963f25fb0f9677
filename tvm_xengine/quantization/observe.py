"""Values of the variables of a forward function in inference mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.frontends.assemble import forward_function
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.forward.evaluation import evaluation_module

PLATFORM = Platform((Device("cpu", "llvm -mcpu=native", kernels=("tir",)),))
"""This machine, with generated kernels only, which need no library."""

Observe = Callable[[Mapping[str, Array]], Mapping[relax.Var, Array]]


def observer(model: ForwardModel, source: ForwardOps, variables: Sequence[relax.Var]) -> Observe:
    """A function from the inputs of a batch to the values of `variables` of `source`.

    Parameters
    ----------
    source
        The ops of the model's forward function.
    variables
        Results of them.
    """
    if not variables:
        return lambda _batch: {}
    names = tuple(f"observed_{k}" for k in range(len(variables)))
    returning = replace(source, writes=(), outputs=tuple(variables)).live()
    mod = tvm.IRModule({"main": forward_function(returning, list(returning.params))})
    forward = build_forward(
        evaluation_module(replace(model, mod=mod)), len(model.input_names), PLATFORM, results=names
    )
    forward.write({name: model.state[name] for name in forward.names(Role.PARAMETER)})
    read = set(forward.names(Role.BATCH))

    def observe(batch: Mapping[str, Array]) -> Mapping[relax.Var, Array]:
        made = forward.step({name: value for name, value in batch.items() if name in read})
        return {var: np.array(made[n]) for var, n in zip(variables, names, strict=True)}

    return observe
