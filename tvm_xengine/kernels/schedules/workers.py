"""How many threads share the work of a kernel."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import Block
from tvm_xengine.kernels.targets import core_count

SHARED_OPS = 2_000_000
"""Operations from which on threads share a kernel: about 100 us of one core, at eight lanes and 2.5 GHz.

A thread that sleeps begins 20 to 30 us after its call (measured: TVM's pool without spinning, two
virtual cores of a Zen 3), so that two threads take about 75 us for them."""

_CALL_OPS = 20
"""Operations that a function such as exp counts for: its polynomial has about as many."""


def worker_count(ops: float, target: Target) -> int:
    """Threads for a kernel with so many operations; a multiplication and its addition are one."""
    return core_count(target) if ops >= SHARED_OPS else 1


def operations(block: Block) -> int:
    """Operations, loads and stores of a block, those of its indices included."""
    found: list[int] = []

    def count(node: object) -> None:
        if not isinstance(node, ir.Var | tirx.IntImm | tirx.FloatImm):
            found.append(_CALL_OPS if isinstance(node, ir.Call) else 1)

    tvm_ffi.structural_walk(block.body, ((tirx.BufferStore, ir.Expr), count))
    return sum(found) * math.prod(axis.extent for axis in (*block.spatial, *block.summed))
