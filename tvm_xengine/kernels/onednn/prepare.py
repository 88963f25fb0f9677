"""Kernels that oneDNN computes, alone or together with generated code."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.library.assembly import assemble
from tvm_xengine.kernels.library.claim import Claim, claims, claims_alone
from tvm_xengine.kernels.library.flops import flops
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.kernels.onednn.call_primitives import call_primitives, context_words
from tvm_xengine.kernels.onednn.library import OnednnLibrary, load_onednn, onednn_version
from tvm_xengine.kernels.onednn.operations import ABILITIES, describe
from tvm_xengine.kernels.onednn.program import Program
from tvm_xengine.kernels.schedules.workers import SHARED_OPS
from tvm_xengine.kernels.targets import thread_count

_logger = logging.getLogger(__name__)


def prepare_onednn_kernel(func: tirx.PrimFunc, target: Target, name: str) -> DeviceKernel | None:
    """The kernel with its main operation computed by oneDNN, None where oneDNN does not take it.

    Raises
    ------
    LibraryError
        When oneDNN is not installed.
    """
    library = load_onednn()
    threads = thread_count(target)
    whole = kernel_parts(func)
    outputs = num_outputs(func)
    if whole is None:
        return None
    possible = (
        claims(whole, ABILITIES, threads)
        if outputs == 1
        else claims_alone(func, ABILITIES, outputs, threads)
    )
    described = _described(possible, library, name)
    if described is None:
        return None
    claimed, program = described
    calls = _Primitives(program, claimed.call.threads)
    return assemble(func, target, name, claimed, calls, onednn=onednn_version())


@dataclass(frozen=True)
class _Primitives:
    """The code that runs a program's primitives on some threads."""

    program: Program
    threads: int

    @property
    def scratch_bytes(self) -> int:
        return self.program.scratch_bytes

    @property
    def words(self) -> int:
        return context_words(self.program)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.program.stages

    def statements(self, tensors: Mapping[int, ir.Expr], context: ir.Var) -> list[tirx.Stmt]:
        return call_primitives(self.program, tensors, context, self.threads)


def _described(
    possible: Iterable[Claim], library: OnednnLibrary, name: str
) -> tuple[Claim, Program] | None:
    """The first claim that oneDNN has a program for."""
    for claim in possible:
        if flops(claim.call) < 2 * SHARED_OPS:  # a multiplication and its addition are two
            claim = replace(claim, call=replace(claim.call, threads=1))
        try:
            program = describe(claim.call, library)
        except LibraryError as error:
            _logger.info("%s is left to the next source: %s", name, error)
            continue
        if program is not None:
            return claim, program
    return None
