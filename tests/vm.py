"""Modules as they are, on TVM's virtual machine: what scheduled steps are compared with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray
from tvm import relax

from tvm_xengine.kernels.lower.hidden_indices import HideIndices


def reference_vm(mod: tvm.IRModule) -> relax.VirtualMachine:
    """A module compiled by TVM's default pipeline, in the least time.

    Checks of arguments would be most of the code of small kernels. The first level of optimization
    leaves less code to generate than none. Indices are hidden, since TVM divides them wrongly.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 1})
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return relax.VirtualMachine(relax.build(HideIndices()(mod), target), tvm.cpu())


def computed(
    mod: tvm.IRModule, values: Iterable[ArrayLike], name: str = "main"
) -> list[NDArray[np.generic]]:
    """All results of one call of a function."""
    # numpy's ascontiguousarray would give a scalar an axis.
    tensors = [tvm.runtime.tensor(np.array(value, order="C")) for value in values]
    made = reference_vm(mod)[name](*tensors)
    return [part.numpy() for part in ([made] if isinstance(made, tvm.runtime.Tensor) else made)]
