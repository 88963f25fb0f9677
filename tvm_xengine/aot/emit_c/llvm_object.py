"""Kernels as an object file with plain C calling conventions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.aot.emit_c.types_in_c import stored_type
from tvm_xengine.errors import ExportError
from tvm_xengine.kernels.device_kernel import DeviceKernel


def write_object(kernels: Mapping[str, DeviceKernel], target: Target, path: Path) -> None:
    """Compile `kernels`, by the name of their C function, into the object file at `path`.

    The functions take ``(inputs..., outputs..., workspace)`` as pointers; the two pointers of an
    in-place pair are equal.

    Raises
    ------
    ExportError
        If a kernel computes in float64 on a Cortex-M with a floating-point unit: LLVM passes such
        numbers to the compiler's routines in registers where GCC's routines do not look.
    """
    if (place := _first_with_doubles(kernels)) and _is_cortex_with_fpu(target):
        raise ExportError(
            f"the kernel {place} computes in float64, for which LLVM and the routines of GCC"
            f" differ on {target.attrs['mcpu']}; export with the backend c"
        )
    module = tvm.IRModule({name: _plain(kernel, name) for name, kernel in kernels.items()})
    passes = tvm.transform.Sequential(
        [
            tirx.transform.FP8StorageLegalize(),
            tirx.transform.BF16StorageLegalize(),
            tirx.transform.LowerTVMBuiltin(),
            tirx.transform.LowerIntrin(),
        ]
    )
    build = tvm.get_global_func(f"target.build.{target.kind.name}")
    build(passes(module), target).write_to_file(str(path), "o")


def object_prototype(kernel: DeviceKernel, name: str) -> str:
    """The C declaration of the function that `write_object` makes of `kernel`."""
    inputs = [f"const {stored_type(spec.dtype)} *" for spec in kernel.inputs]
    for pair in kernel.inplace:
        inputs[pair.input] = f"{stored_type(kernel.inputs[pair.input].dtype)} *"
    outputs = [f"{stored_type(spec.dtype)} *" for spec in kernel.outputs]
    workspace = ["uint8_t *"] if kernel.workspace_bytes else []
    return f"void {name}({', '.join([*inputs, *outputs, *workspace])})"


def _is_cortex_with_fpu(target: Target) -> bool:
    triple = str(target.attrs.get("mtriple", ""))
    return triple.startswith("thumb") and triple.endswith("hf")


def _first_with_doubles(kernels: Mapping[str, DeviceKernel]) -> str:
    """The name of a kernel with a float64 value; empty if there is none."""
    for name, kernel in kernels.items():
        found: list[ir.Expr] = []
        tvm_ffi.structural_walk(kernel.func.body, (ir.Expr, found.append))
        if any(str(getattr(one.ty, "dtype", "")) == "float64" for one in found):
            return name
    return ""


def _plain(kernel: DeviceKernel, name: str) -> tirx.PrimFunc:
    """The kernel with pointers as parameters, which shares memory where its pairs say so."""
    func = kernel.func
    pointers = [
        ir.Var(f"{param.name}_pointer", ir.PointerType(param.ty.dtype, "global"))
        for param in func.params
    ]
    declared = [
        tirx.DeclBuffer(param, data=pointer)
        for param, pointer in zip(func.params, pointers, strict=True)
    ]
    body = _serial(func.body)
    plain = tirx.PrimFunc(pointers, tirx.SeqStmt([*declared, body]), func.ret_type, func.attrs)
    plain = plain.with_attr("global_symbol", name).with_attr("target", kernel.target)
    return plain.without_attr("tirx.noalias") if kernel.inplace else plain


def _serial(stmt: tirx.Stmt) -> tirx.Stmt:
    """`stmt` with parallel loops, which need a runtime, turned into plain ones."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_serial(child) for child in stmt.seq])
        case tirx.For():
            kind = stmt.kind
            return tirx.For(
                stmt.loop_var,
                stmt.min,
                stmt.extent,
                tirx.ForKind.SERIAL if kind == tirx.ForKind.PARALLEL else kind,
                _serial(stmt.body),
                None,
                stmt.annotations,
                stmt.step,
            )
        case tirx.IfThenElse():
            otherwise = None if stmt.else_case is None else _serial(stmt.else_case)
            return tirx.IfThenElse(stmt.condition, _serial(stmt.then_case), otherwise)
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _serial(stmt.body))
        case _:
            return stmt
