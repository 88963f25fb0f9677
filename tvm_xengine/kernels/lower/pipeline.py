"""The TIR passes between a scheduled kernel and machine code."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_xengine.kernels.lower.branch_around_reads import BranchAroundReads
from tvm_xengine.kernels.lower.explicit_workspace import STACK_BYTES, ExplicitWorkspace
from tvm_xengine.kernels.lower.flatten_buffers import flatten_buffers
from tvm_xengine.kernels.lower.inline_trivial_lets import InlineTrivialLets
from tvm_xengine.kernels.lower.skip_argument_checks import SkipArgumentChecks
from tvm_xengine.kernels.lower.store_nested_lets import StoreNestedLets
from tvm_xengine.kernels.lower.store_short_bindings import StoreShortBindings
from tvm_xengine.kernels.lower.transcendentals.expand import ExpandTranscendentals


def lower_to_explicit_memory(target: Target) -> tvm.transform.Pass:
    """Passes that turn a scheduled kernel into loops that allocate nothing at run time.

    They are the CPU part of ``s_tir.pipeline.default_s_tir_pipeline`` up to the place where
    memory is planned for good, and then ``ExplicitWorkspace``.
    """
    return tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(target.with_host(target)),
            ExpandTranscendentals(),
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            # C has no vectors; who writes it, or its compiler, finds them in plain loops.
            *blocks_to_loops(vectors=target.kind.name != "c"),
            *plan_memory(STACK_BYTES),
        ]
    )


def blocks_to_loops(*, vectors: bool, scope: str = "global") -> list[tvm.transform.Pass]:
    """Passes from blocks with their own buffers to plain loops over flat ones.

    What one element of memory holds lies in `scope`.
    """
    return [
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.ConvertSSA(),  # schedules copy lets, and an analyser refuses two values of one
        flatten_buffers(),
        s_tir.transform.StmtSimplify(),
        StoreShortBindings(scope),
        tirx.transform.BF16ComputeLegalize(),
        ExpandTranscendentals(),
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(vectors),
    ]


def plan_memory(stack_bytes: int) -> list[tvm.transform.Pass]:
    """Passes that simplify loops, and make every buffer of `stack_bytes` or more workspace."""
    return [
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        BranchAroundReads(),
        ExplicitWorkspace(stack_bytes),
        tirx.transform.CommonSubexprElim(),
        InlineTrivialLets(),
        tirx.transform.FP8ComputeLegalize(),
        tirx.transform.VerifyMemory(),
    ]


PACKED_CALLS_REVISION = 1
"""To be raised when `StoreNestedLets` makes other code: it runs behind what `kernel_key` hashes."""


def packed_call_passes() -> list[tvm.transform.Pass]:
    """Passes that give lowered kernels the calling convention of tvm-ffi."""
    return [
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        SkipArgumentChecks(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        tirx.transform.LowerTVMBuiltin(),
        StoreNestedLets(),
        tirx.transform.LowerIntrin(),
    ]
