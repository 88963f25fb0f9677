"""Kernels that oneDNN computes, alone or together with generated code."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

import tvm
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.errors import LibraryError, UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import (
    DeviceKernel,
    TensorSpec,
    kernel_symbol,
    prepare_kernel,
    tensor_specs,
)
from tvm_xengine.kernels.identity import kernel_key
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.library.flops import flops
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.library.rest import Rest, without_parts
from tvm_xengine.kernels.lower.explicit_workspace import ALIGNMENT_BYTES
from tvm_xengine.kernels.onednn.call_primitives import call_primitives, context_words
from tvm_xengine.kernels.onednn.claim import Claim, claims, claims_alone
from tvm_xengine.kernels.onednn.library import NAME, OnednnLibrary, load_onednn, onednn_version
from tvm_xengine.kernels.onednn.operations import describe
from tvm_xengine.kernels.onednn.program import SCRATCH, Program
from tvm_xengine.kernels.schedules.workers import SHARED_OPS
from tvm_xengine.kernels.targets import thread_count
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.kernel_hash import kernel_hash
from tvm_xengine.scheduling.sizes import round_up

_logger = logging.getLogger(__name__)


def prepare_onednn_kernel(func: tirx.PrimFunc, target: Target, name: str) -> DeviceKernel | None:
    """The kernel with its main operation computed by oneDNN, None where oneDNN does not take it.

    What else was fused into the kernel is generated as usual; it reads the library's result, and
    writes over it where it may.

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
    possible = claims(whole, threads) if outputs == 1 else claims_alone(func, outputs, threads)
    described = _described(possible, library, name)
    if described is None:
        return None
    claimed, program = described
    specs = tensor_specs(func)
    rest = without_parts(whole, claimed.made, claimed.taken) if outputs == 1 else None
    following = None if rest is None else _prepare_rest(rest, claimed, specs[-1], target)
    assembly = _Assembly(specs, claimed, program, following)
    code = assembly.function()
    key = kernel_key(code, target, onednn=onednn_version(), call=str(claimed.call))
    symbol = kernel_symbol(key)
    return DeviceKernel(
        func=_bound(code, symbol, target),
        symbol=symbol,
        name=name,
        key=key,
        target=target,
        inputs=specs[: len(specs) - outputs],
        outputs=specs[len(specs) - outputs :],
        workspace_bytes=assembly.workspace_bytes,
        inplace=(),
        is_parallel=claimed.call.threads > 1,
        source=NAME,
        function=kernel_hash(func),
        library=claimed.call,
        library_flops=flops(claimed.call),
        library_stages=program.stages,
    )


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


@dataclass(frozen=True)
class _Following:
    """The generated code behind the library's call.

    Attributes
    ----------
    made_at
        Which of its inputs the library makes.
    """

    kernel: DeviceKernel
    reads: tuple[int, ...]
    made_at: int

    @property
    def is_inplace(self) -> bool:
        """Whether it writes over what the library has made."""
        return bool(self.kernel.inplace)

    def param(self, number: int) -> ir.Var | None:
        """The parameter that is an input of the whole kernel, None where it reads no such."""
        return self.kernel.func.params[self.reads.index(number)] if number in self.reads else None

    @property
    def made(self) -> ir.Var:
        """The parameter that the library makes."""
        return self.kernel.func.params[self.made_at]

    @property
    def output(self) -> ir.Var:
        """The parameter it writes: where it writes over its input, that is the one in its code."""
        return self.made if self.is_inplace else self.kernel.func.params[len(self.reads)]


def _prepare_rest(rest: Rest, claimed: Claim, output: TensorSpec, target: Target) -> _Following:
    made_at = rest.reads.index(claimed.made)
    if tensor_specs(rest.func)[made_at] == output:
        inplace = rest.func.with_attr(INPLACE_ATTR, [0, made_at])
        try:
            return _Following(prepare_kernel(inplace, target), rest.reads, made_at)
        except UnsupportedModuleError:
            pass  # it reads elements that it would have overwritten
    return _Following(prepare_kernel(rest.func, target), rest.reads, made_at)


class _Assembly:
    """Parameters, memory and statements of the whole kernel."""

    def __init__(
        self,
        specs: tuple[TensorSpec, ...],
        claimed: Claim,
        program: Program,
        following: _Following | None,
    ) -> None:
        self._claimed = claimed
        self._program = program
        self._following = following
        num_inputs = len(specs) - claimed.call.num_outputs
        self._inputs = [self._input(k, spec) for k, spec in enumerate(specs[:num_inputs])]
        self._outputs = (
            [tirx.decl_buffer(s.shape, s.dtype, name="output") for s in specs[num_inputs:]]
            if following is None
            else [following.output]
        )
        needs = [program.scratch_bytes]
        needs += [] if following is None else [following.kernel.workspace_bytes]
        self._shared_bytes = round_up(max(needs), ALIGNMENT_BYTES)

    @property
    def workspace_bytes(self) -> int:
        """The scratch memory of library and generated code, and the result between them."""
        return self._shared_bytes + round_up(self._made_bytes, ALIGNMENT_BYTES)

    def function(self) -> tirx.PrimFunc:
        """The kernel: inputs, outputs, workspace if there is one, context."""
        size = self.workspace_bytes
        workspace = tirx.decl_buffer((max(size, 1),), "uint8", name="workspace")
        words = context_words(self._program)
        context = tirx.decl_buffer((words,), "int64", name="context")
        call = self._claimed.call
        tensors = {k: self._inputs[n].data for k, n in enumerate(self._claimed.inputs)}
        made = self._outputs[0].data
        if self._made_bytes:
            made = _at(workspace, self._shared_bytes)
        first = len(call.shapes) - call.num_outputs
        further = {first + k: output.data for k, output in enumerate(self._outputs[1:], 1)}
        tensors |= {first: made, **further, SCRATCH: workspace.data}
        statements = call_primitives(self._program, tensors, context, call.threads)
        if self._following is not None:
            statements += self._declarations(workspace, made)
            statements.append(self._following.kernel.func.body)
        params = [*self._inputs, *self._outputs, *([workspace] if size else []), context]
        func = tirx.PrimFunc(params, tirx.SeqStmt(statements))
        return func.with_attr("tirx.noalias", True)

    def _declarations(self, workspace: ir.Var, made: ir.Expr) -> list[tirx.Stmt]:
        """What the generated code takes for parameters, and is memory of the workspace here."""
        following = self._following
        if following is None:
            return []
        declared = []
        if self._made_bytes:
            declared.append(_declare(following.made, made))
        if following.kernel.workspace_bytes:
            declared.append(_declare(following.kernel.func.params[-1], workspace.data))
        return declared

    @property
    def _made_bytes(self) -> int:
        """Bytes of the library's result where it is not the kernel's."""
        if self._following is None or self._following.is_inplace:
            return 0
        spec = self._following.kernel.inputs[self._following.made_at]
        return spec.size_bytes

    def _input(self, number: int, spec: TensorSpec) -> ir.Var:
        known = None if self._following is None else self._following.param(number)
        if known is not None:
            return known
        return tirx.decl_buffer(spec.shape, spec.dtype, name=f"input{number}")


def _declare(buffer: ir.Var, address: ir.Expr) -> tirx.Stmt:
    return tirx.DeclBuffer(buffer, data=tirx.reinterpret(buffer.data.ty, address))


def _at(workspace: ir.Var, offset_bytes: int) -> ir.Expr:
    return tirx.handle_add_byte_offset(workspace.data, tirx.const(offset_bytes, "int64"))


def _bound(func: tirx.PrimFunc, symbol: str, target: Target) -> tirx.PrimFunc:
    """The function under its name, for a target."""
    module = tvm.IRModule({symbol: func.with_attr("global_symbol", symbol)})
    return tirx.transform.BindTarget(target.with_host(target))(module)[symbol]
