"""Turn a function of high-level operators into one of kernel calls."""

from __future__ import annotations

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.lower.hidden_indices import ShowIndices
from tvm_xengine.passes.fusion.fuse_in_order import OPAQUE_PATTERN, FuseInOrder, with_own_kernels
from tvm_xengine.passes.fusion.fuse_keeping_parts import FuseKeepingParts
from tvm_xengine.passes.lowering.drop_empty_reductions import DropEmptyReductions
from tvm_xengine.passes.lowering.express_views_as_reshape import ExpressViewsAsReshape
from tvm_xengine.passes.lowering.inline_scalar_constants import InlineScalarConstants
from tvm_xengine.passes.lowering.lift_constants import LiftConstants
from tvm_xengine.passes.lowering.name_bindings_by_kernel import NameBindingsByKernel
from tvm_xengine.passes.lowering.name_kernels import named_legalizations
from tvm_xengine.passes.resolve_hints import ResolveHints
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block
from tvm_xengine.relax_ir.hints import read_places
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.kernel_calls import kernel_call
from tvm_xengine.relax_ir.signature import StepSignature, is_step

_INJECTIVE = 2
"""What ``op_pattern`` is at most for a kernel that reads one element of each input per element."""


@tvm.transform.module_pass(opt_level=0, name="LowerToKernels")
class LowerToKernels:
    """Make every binding of a function one kernel call, a view or a tuple access.

    .. code-block:: python

        with R.dataflow():
            c = R.nn.conv2d(x, w)
            a = R.nn.relu(c)
            f = R.flatten(a)
            R.output(f)

    becomes

    .. code-block:: python

        with R.dataflow():
            conv2d_relu = R.call_tir(fused_conv2d_relu, (x, w), ...)
            f = R.reshape(conv2d_relu, ...)
            R.output(f)

    The bindings keep their order. Kernels with several outputs or with the attribute
    ``tvm_xengine.inplace`` are kept as they are. Tensor constants become parameters
    (:class:`LiftConstants`), scalars literals of the kernels. Hints are resolved first
    (:class:`ResolveHints`); a call whose place they give is not fused. ``EliminateCommonSubexpr`` must not
    run afterwards: a scheduled function repeats calls on purpose.

    Parameters
    ----------
    func_name
        The function to lower.
    fuse
        Whether operators are fused into one kernel where the code generator can keep the
        intermediate out of memory.
    """

    def __init__(self, func_name: str = "train_step", fuse: bool = True) -> None:
        self.func_name = func_name
        self.fuse = fuse

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        name = self.func_name
        passes = [
            ResolveHints(name),
            ShowIndices(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.DeadCodeElimination([name]),
            ExpressViewsAsReshape(name),
            relax.transform.LegalizeOps(named_legalizations(), ["relax.reshape"]),
            DropEmptyReductions(),
            InlineScalarConstants(name),
            LiftConstants(name),
        ]
        if self.fuse:
            passes += [
                _KeepApart(name),
                relax.transform.AnnotateTIROpPattern(),
                _KeepUpdatesApart(name),
                FuseInOrder(name),
                FuseKeepingParts(),
            ]
        passes += [NameBindingsByKernel(name), relax.transform.DeadCodeElimination([name])]
        lowered = tvm.transform.Sequential(passes)(mod)
        _require_kernels(lowered[name])
        return lowered


@tvm.transform.module_pass(opt_level=0, name="KeepApart")
class _KeepApart:
    """Mark the kernels that no fusion may touch."""

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        called = _output_counts(mod)
        for symbol, func in mod.functions_items():
            if not isinstance(func, tirx.PrimFunc):
                continue
            if INPLACE_ATTR in func.attrs or called.get(symbol, 1) > 1:
                mod[symbol] = func.with_attr("op_pattern", OPAQUE_PATTERN)
        placed = read_places(mod[self.func_name])
        bindings = single_block(mod[self.func_name]).bindings
        calls = [
            b.var for at, b in enumerate(bindings) if b.var.name in placed and kernel_call(at, b)
        ]
        return with_own_kernels(mod, self.func_name, calls) if calls else mod


@tvm.transform.module_pass(opt_level=0, name="KeepUpdatesApart")
class _KeepUpdatesApart:
    """Keep what computes a gradient out of the kernel that makes new state of it.

    The update of each element is then a kernel that may write over the old state, and the gradient
    may be a call of a library.
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = mod[self.func_name]
        if not is_step(func):
            return mod
        calls = {
            call.var: call
            for at, binding in enumerate(single_block(func).bindings)
            if (call := kernel_call(at, binding)) is not None
        }
        waiting = list(returned_fields(func)[StepSignature.read(func).num_results :])
        apart: dict[relax.Var, None] = {}
        seen: set[relax.Expr] = set()
        while waiting:
            var = waiting.pop()
            if var not in calls or var in seen:
                continue
            seen.add(var)
            pattern = int(mod[calls[var].kernel].attrs.get("op_pattern", OPAQUE_PATTERN))
            if pattern <= _INJECTIVE:
                waiting += calls[var].args
            elif pattern != OPAQUE_PATTERN:
                apart[var] = None
        return with_own_kernels(mod, self.func_name, list(apart)) if apart else mod


def _output_counts(mod: tvm.IRModule) -> dict[ir.GlobalVar, int]:
    """Number of outputs of each kernel that a function of the module calls."""
    call_tir = ir.Op.get("relax.call_tir")
    return {
        binding.value.args[0]: len(binding.var.ty.fields)
        for func in mod.functions.values()
        if isinstance(func, relax.Function)
        for binding in single_block(func).bindings
        if isinstance(binding.value, ir.Call)
        and binding.value.op == call_tir
        and isinstance(binding.var.ty, relax.TupleType)
    }


def _require_kernels(func: relax.Function) -> None:
    for binding in single_block(func).bindings:
        if (found := _without_kernel(binding.value)) is not None:
            raise UnsupportedModuleError(
                f"{binding.var.name} is computed by {found}, for which there is no kernel"
            )


def _without_kernel(value: relax.Expr) -> str | None:
    """Name what computes `value` when it is no kernel call, view or tuple access."""
    if isinstance(value, relax.TupleGetItem | relax.Tuple):
        return None
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return type(value).__name__
    if value.op.name in ("relax.call_tir", "relax.reshape"):
        return None
    if value.args and isinstance(value.args[0], relax.ExternFunc):
        return str(value.args[0].global_symbol)
    return str(value.op.name)
