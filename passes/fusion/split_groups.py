"""Split fused kernels whose temporary memory enlarges the arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.kernels.library.parts import KernelParts, kernel_parts
from tvm_xengine.passes.lowering.name_bindings_by_kernel import NameBindingsByKernel
from tvm_xengine.relax_ir.dataflow import single_block, with_bindings
from tvm_xengine.relax_ir.kernel_calls import KernelCall, kernel_call, read_origins, write_origins
from tvm_xengine.relax_ir.live_bytes import live_bytes, size_bytes


@dataclass(frozen=True)
class KernelNeeds:
    """The source of a kernel's memory and time; both may prepare it for a device.

    Attributes
    ----------
    workspace_bytes, time_us
        Of a kernel on the device where it takes most.
    """

    workspace_bytes: Callable[[tirx.PrimFunc], int]
    time_us: Callable[[tirx.PrimFunc], float]


@tvm.transform.module_pass(opt_level=0, name="SplitGroups")
class SplitGroups:
    """Undo the fusions that cost more memory than they save time.

    A fused kernel may need temporary memory where its parts alone need less, because what one of
    them made is gone before the next one begins:

    .. code-block:: python

        y = R.call_tir(fused_matmul_gelu, (x, w), ...)   # packs w, and keeps the product besides

    becomes

    .. code-block:: python

        a = R.call_tir(matmul, (x, w), ...)
        y = R.call_tir(gelu, (a,), ...)

    The kernel at which most bytes are alive, its temporary memory included, is taken apart
    wherever it is called, and then the next one, until that place is a kernel of one part. Of all
    the functions on this way that one is the result for which arena times predicted time is the
    least: a share of the arena is worth the same share of the time. Runs after `FuseKeepingParts`.

    Parameters
    ----------
    func_name
        The function whose arena counts.
    needs
        Of kernels on the devices that the function is for.
    """

    def __init__(self, func_name: str, needs: KernelNeeds) -> None:
        self.func_name = func_name
        self.needs = needs

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        tried = [_State(mod, self.func_name, self.needs)]
        while (further := tried[-1].without_largest()) is not None:
            tried.append(further)
        peaks = [state.peak_bytes for state in tried]
        if min(peaks) == peaks[0]:
            return mod
        best = min(tried, key=lambda state: state.arena_bytes * state.time_us).mod
        passes = [
            relax.transform.Normalize(),
            NameBindingsByKernel(self.func_name),
            relax.transform.DeadCodeElimination([self.func_name]),
        ]
        return tvm.transform.Sequential(passes)(best)


class _State:
    """A module on the way, and what its function needs."""

    def __init__(self, mod: tvm.IRModule, func_name: str, needs: KernelNeeds) -> None:
        self.mod = mod
        self._func_name = func_name
        self._needs = needs
        self._func = mod[func_name]
        self._bindings = list(single_block(self._func).bindings)
        self._calls = [kernel_call(at, binding) for at, binding in enumerate(self._bindings)]
        live = live_bytes(self._func, self._bindings)
        self._bytes_at = [
            size + (0 if call is None else needs.workspace_bytes(mod[call.kernel]))
            for size, call in zip(live, self._calls, strict=True)
        ]

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are alive at once, temporary memory included."""
        return max(self._bytes_at, default=0)

    @property
    def arena_bytes(self) -> int:
        """The same with all that the function is given."""
        return self.peak_bytes + sum(map(size_bytes, self._func.params))

    @property
    def time_us(self) -> float:
        """Sum of the predicted times of all calls."""
        calls = [call for call in self._calls if call is not None]
        by_kernel = {
            kernel: self._needs.time_us(self.mod[kernel]) for kernel in {c.kernel for c in calls}
        }
        return sum(by_kernel[call.kernel] for call in calls)

    def without_largest(self) -> _State | None:
        """With the kernel taken apart that needs most; None where it has one part only."""
        at = max(range(len(self._bytes_at)), key=self._bytes_at.__getitem__, default=None)
        call = None if at is None else self._calls[at]
        parts = None if call is None else kernel_parts(self.mod[call.kernel])
        if call is None or parts is None or len(parts.parts) < 2:
            return None
        builder = relax.BlockBuilder(self.mod.clone())
        whole = call.kernel.name_hint.removeprefix("fused_")
        symbols = [
            builder.add_func(part.func, part.name or f"{whole}_part{k}")
            for k, part in enumerate(parts.parts)
        ]
        bindings: list[relax.Binding] = []
        origins = dict(read_origins(self._func))
        for binding, other in zip(self._bindings, self._calls, strict=True):
            if other is not None and other.kernel.same_as(call.kernel):
                names = origins.pop(binding.var.name, ())
                bindings += _apart(binding, other, parts, symbols, names)
                origins |= {binding.var.name: names[-1:]} if names else {}
            else:
                bindings.append(binding)
        mod = builder.get()
        mod[self._func_name] = write_origins(with_bindings(self._func, bindings), origins)
        return _State(relax.transform.Normalize()(mod), self._func_name, self._needs)


def _apart(
    binding: relax.Binding,
    call: KernelCall,
    made_of: KernelParts,
    symbols: Sequence[ir.GlobalVar],
    names: Sequence[str],
) -> list[relax.Binding]:
    """A call of each part instead of one of the fused kernel.

    Parameters
    ----------
    names
        Of the parts before they were fused; empty where unknown.
    """
    values: list[relax.Expr] = list(call.args)
    bindings: list[relax.Binding] = []
    for k, (part, symbol) in enumerate(zip(made_of.parts, symbols, strict=True)):
        is_last = k == len(symbols) - 1
        shape, dtype = part.output_shape, str(part.func.params[-1].ty.dtype.dtype)
        made = relax.TensorType(list(shape), dtype)
        value = relax.call_tir(symbol, relax.Tuple([values[n] for n in part.inputs]), made)
        name = names[k] if len(names) == len(symbols) else "lv"
        var = binding.var if is_last else relax.DataflowVar(name, made)
        bindings.append(relax.VarBinding(var, value))
        values.append(var)
    return bindings
