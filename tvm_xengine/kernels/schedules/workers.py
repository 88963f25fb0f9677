"""How many threads share the work of a kernel."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import Block
from tvm_xengine.kernels.targets import core_count

SHARED_OPS = 500_000
"""Operations from which on threads share a kernel: about 25 us of one core, at eight lanes and 2.5 GHz.

A thread that is ready begins some 2 us after its call. With a quarter of 2 million, steps of LeNet and
DS-CNN took 0.89 and 0.91 of the time on two cores of a Zen 4; with a tenth as long as with a quarter,
and the mlp's 5 % longer."""

_CALL_OPS = 20
"""Operations that a function such as exp counts for: its polynomial has about as many."""

_ITERATIONS_PER_WORKER = 4
"""So that the largest share of several is at most a quarter larger than the mean."""


def worker_count(ops: float, target: Target) -> int:
    """Threads for a kernel with so many operations; a multiplication and its addition are one."""
    return core_count(target) if ops >= SHARED_OPS else 1


def least_iterations(workers: int) -> int:
    """Iterations that a loop which is shared should have."""
    return _ITERATIONS_PER_WORKER * workers if workers > 1 else 1


def operations(block: Block) -> int:
    """Operations, loads and stores of a block, those of its indices included."""
    found: list[int] = []

    def count(node: object) -> None:
        if not isinstance(node, ir.Var | tirx.IntImm | tirx.FloatImm):
            found.append(_CALL_OPS if isinstance(node, ir.Call) else 1)

    tvm_ffi.structural_walk(block.body, ((tirx.BufferStore, ir.Expr), count))
    return sum(found) * math.prod(axis.extent for axis in (*block.spatial, *block.summed))
