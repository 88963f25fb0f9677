"""Kernels that a library computes, alone or together with generated code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import tvm
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import (
    DeviceKernel,
    TensorSpec,
    kernel_symbol,
    prepare_kernel,
    tensor_specs,
)
from tvm_xengine.kernels.identity import kernel_key
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.library.claim import Claim
from tvm_xengine.kernels.library.flops import flops
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.library.rest import Rest, without_parts
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.kernels.lower.explicit_workspace import ALIGNMENT_BYTES
from tvm_xengine.kernels.targets import is_gpu
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR, kernel_hash
from tvm_xengine.scheduling.sizes import round_up

SCRATCH = -1
"""Stands for the scratch memory where others have the number of a tensor."""


class LibraryCalls(Protocol):
    """The code that runs a claimed call."""

    @property
    def scratch_bytes(self) -> int:
        """Temporary memory of the library."""
        ...

    @property
    def words(self) -> int:
        """Length of the context that the code reads."""
        ...

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The functions that the library runs, where it says them."""
        ...

    def statements(self, tensors: Mapping[int, ir.Expr], context: ir.Var) -> list[tirx.Stmt]:
        """The code.

        Parameters
        ----------
        tensors
            Address of each parameter of the call, and of `SCRATCH`.
        context
            Buffer of the words of the library's context.
        """
        ...


def assemble(
    func: tirx.PrimFunc,
    target: Target,
    name: str,
    claimed: Claim,
    calls: LibraryCalls,
    **facts: str,
) -> DeviceKernel:
    """The kernel whose main operation the library computes.

    What else was fused into the kernel is generated as usual; it reads the library's result, and
    writes over it where it may.

    Parameters
    ----------
    facts
        What the code depends on beside itself, such as the version of the library.
    """
    outputs = num_outputs(func)
    specs = tensor_specs(func)
    whole = kernel_parts(func) if outputs == 1 else None
    rest = None if whole is None else without_parts(whole, claimed.taken)
    following = None if rest is None else _prepare_rest(rest, claimed, specs[-1], target)
    assembly = _Assembly(specs, claimed, calls, following)
    code = assembly.function()
    key = kernel_key(code, target, call=str(claimed.call), **facts)
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
        source=claimed.call.source,
        function=kernel_hash(func),
        library=claimed.call,
        library_flops=flops(claimed.call),
        library_stages=calls.stages,
    )


def checked_call(library: str, function: str, *arguments: ir.Expr) -> tirx.Stmt:
    """A call of a library's function that must return 0."""
    status = tirx.call_extern("int32", function, *arguments)
    # TVM 0.27 names the first two parameters the wrong way round.
    return tirx.AssertStmt(
        status == tirx.const(0, "int32"),
        ir.StringImm("RuntimeError"),
        [ir.StringImm(f"{function} of {library} failed")],
    )


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
        calls: LibraryCalls,
        following: _Following | None,
    ) -> None:
        self._claimed = claimed
        self._calls = calls
        self._following = following
        num_inputs = len(specs) - claimed.call.num_outputs
        self._inputs = [self._input(k, spec) for k, spec in enumerate(specs[:num_inputs])]
        self._outputs = (
            [tirx.decl_buffer(s.shape, s.dtype, name="output") for s in specs[num_inputs:]]
            if following is None
            else [following.output]
        )
        needs = [calls.scratch_bytes]
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
        context = tirx.decl_buffer((self._calls.words,), "int64", name="context")
        call = self._claimed.call
        tensors = {k: self._inputs[n].data for k, n in enumerate(self._claimed.inputs)}
        made = self._outputs[0].data
        if self._made_bytes:
            made = _at(workspace, self._shared_bytes)
        first = len(call.shapes) - call.num_outputs
        further = {first + k: output.data for k, output in enumerate(self._outputs[1:], 1)}
        tensors |= {first: made, **further, SCRATCH: workspace.data}
        statements = self._calls.statements(tensors, context)
        if self._following is not None:
            statements += self._declarations(workspace, made)
            statements.append(self._following.kernel.func.body)
        params = [*self._inputs, *self._outputs, *([workspace] if size else []), context]
        body = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
        func = tirx.PrimFunc(params, body)
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
    """The function under its name, for a target and the processor that calls."""
    module = tvm.IRModule({symbol: func.with_attr("global_symbol", symbol)})
    host = Target({"kind": "llvm"}) if is_gpu(target) else target
    return tirx.transform.BindTarget(target.with_host(host))(module)[symbol]
