"""The TIR passes between a kernel scheduled for a GPU and its launches."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.target import Target
from tvm.tirx.build import split_host_device_mods

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.lower.pipeline import blocks_to_loops, plan_memory
from tvm_xengine.kernels.lower.skip_argument_checks import SkipArgumentChecks
from tvm_xengine.kernels.lower.transcendentals.expand import ExpandTranscendentals
from tvm_xengine.kernels.targets import max_shared_bytes, max_threads_per_block

_REGISTER_BYTES = 65_536
"""MetaSchedule's limit for NVIDIA GPUs: the registers of a block."""

_VIRTUAL_THREADS = 8
"""The limit of MetaSchedule's own verification."""


def lower_to_launches(target: Target) -> tvm.transform.Pass:
    """Passes that turn a kernel bound to threads into launches that allocate nothing.

    They are the GPU part of ``s_tir.pipeline.default_s_tir_pipeline`` up to ``SplitHostDevice``,
    with `ExplicitWorkspace`: what one launch leaves for the next is workspace, however small. At
    the end a kernel is refused whose launches need more threads or shared memory than a block of
    `target` has (see also `require_launches`). Transcendental functions are
    written out as for processors, because TVM has the CUDA compiler replace them by instructions
    that are right in 11 bits.
    """
    host = Target({"kind": "llvm"})
    return tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(target.with_host(host)),
            ExpandTranscendentals(),
            s_tir.transform.CanonicalizeLoop(),
            tirx.transform.prim_func_pass(_guarded, opt_level=0, name="GuardSums"),
            s_tir.transform.LowerCrossThreadReduction(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LiftThreadBinding(),
            s_tir.transform.ManifestSharedMemoryLocalStage(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerAutoCopy(),
            s_tir.transform.UnifyThreadBinding(),
            *blocks_to_loops(vectors=True, scope="local"),
            s_tir.transform.InjectVirtualThread(),
            *plan_memory(stack_bytes=0),
            s_tir.transform.ThreadSync("shared"),
            s_tir.transform.ThreadSync("shared.dyn"),
            s_tir.transform.ThreadSync("warp"),
            s_tir.transform.InferFragment(),
            s_tir.transform.LowerThreadAllreduce(),
            s_tir.transform.MergeSharedMemoryAllocations(),
            _verify_limits(target),
        ]
    )


def require_launches(kernel: tirx.PrimFunc) -> None:
    """Raise UnsupportedModuleError where a lowered kernel touches memory outside of a launch."""
    if (found := _outside_launches(kernel.body)) is not None:
        raise UnsupportedModuleError(
            f"expected every loop to be bound to the threads of a launch, found {found} outside"
        )


def _outside_launches(stmt: tirx.Stmt) -> str | None:
    """What the processor that launches would do itself."""
    match stmt:
        case tirx.AttrStmt() if stmt.attr_key == "thread_extent":
            return None
        case tirx.SeqStmt():
            found = (_outside_launches(child) for child in stmt.seq)
            return next((one for one in found if one is not None), None)
        case tirx.AttrStmt():
            return _outside_launches(stmt.body)
        case tirx.DeclBuffer() | tirx.AllocBuffer() | tirx.Bind():
            return None
        case _:
            return type(stmt).__name__


def split_host_and_device(mod: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """The functions that launch, ready for LLVM, and the launches, ready for a GPU's compiler.

    There are no launches where a library makes them all.
    """
    packed = tvm.transform.Sequential(
        [
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
            SkipArgumentChecks(),
            tirx.transform.FP8StorageLegalize(),
            tirx.transform.BF16StorageLegalize(),
        ]
    )(mod)
    host, by_target = split_host_device_mods(packed)
    if len(by_target) > 1:
        raise ValueError(f"expected launches for one target, got {[str(t) for t in by_target]}")
    device = next(iter(by_target.values()), tvm.IRModule())
    for_host = [tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()]
    return (
        tvm.transform.Sequential(for_host)(host),
        tvm.transform.Sequential(launch_passes())(device),
    )


def launch_passes() -> list[tvm.transform.Pass]:
    """Passes that make launches ready for a GPU's compiler."""
    return [
        tirx.transform.LowerWarpMemory(),
        tirx.transform.StmtSimplify(),
        tirx.transform.LowerIntrin(),
    ]


def _guarded(
    func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Write each condition of a block twice: of a single one ``LowerCrossThreadReduction`` takes no notice.

    Where threads that share a sum are more than there are sums, their results were written behind the
    tensor.
    """

    def guarded(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        condition = realize.predicate
        if isinstance(condition, (tirx.And, tirx.IntImm)):
            return realize
        twice = tirx.And(condition, condition)
        return s_tir.SBlockRealize(realize.iter_values, twice, realize.block, realize.span)

    body = tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, guarded))
    return func.with_body(body)


def _verify_limits(target: Target) -> tvm.transform.Pass:
    verify = tvm.get_global_func("s_tir.transform.VerifyGPUCode")
    limits = {
        "max_threads_per_block": max_threads_per_block(target),
        "max_shared_memory_per_block": max_shared_bytes(target),
        "max_local_memory_per_block": _REGISTER_BYTES,
        "max_vthread": _VIRTUAL_THREADS,
    }
    return verify(limits)
