"""Kernels that are equal but for where in their operands they begin."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.kernels.buffers import buffer_roots


@dataclass(frozen=True)
class FromFirstElements:
    """A lowered kernel whose operands begin at the first element that it uses.

    Attributes
    ----------
    func
        The kernel.
    first
        Of each parameter, the position of that element in the operand.
    """

    func: tirx.PrimFunc
    first: tuple[int, ...]


def from_first_elements(func: tirx.PrimFunc) -> FromFirstElements:
    """The kernel without what all indices of an operand have in common.

    .. code-block:: python

        y[i] = x[i + 96]

    becomes ``y[i] = x[i]`` of an x that begins at its element 96, so that one function makes every
    slice of a tensor. An operand whose bytes are also read as another type stays as it is.
    """
    roots, analyzer = buffer_roots(func), sym.Analyzer()
    body = _without_names_of_indices(func.body)
    first: dict[ir.Var, int] = {}

    def simple(node: tirx.BufferStore | ir.TensorLoad) -> list[ir.Expr]:
        return [analyzer.simplify(index) for index in node.indices]

    def find(node: tirx.BufferStore | ir.TensorLoad) -> None:
        root = roots.get(_buffer(node))
        if root is not None:
            constant = _constant(simple(node))
            first[root] = min(constant, first.get(root, constant))

    tvm_ffi.structural_walk(body, ((tirx.BufferStore, ir.TensorLoad), find))
    retyped = {root for buffer, root in roots.items() if _type(buffer) != _type(root)}
    moved = {
        param: at
        for param, at in first.items()
        if param not in retyped and 0 < at < prod(int(extent) for extent in param.ty.shape)
    }

    def indices(node: tirx.BufferStore | ir.TensorLoad) -> list[ir.Expr]:
        at = moved.get(roots.get(_buffer(node)), 0)
        return [analyzer.simplify(index - at) if at else index for index in simple(node)]

    def load(node: ir.TensorLoad) -> ir.Expr:
        return node.source[tuple(indices(node))]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        return tirx.BufferStore(node.buffer, node.value, indices(node))

    body = tvm_ffi.structural_map(body, [(ir.TensorLoad, load), (tirx.BufferStore, store)])
    return FromFirstElements(
        func.with_body(body), tuple(moved.get(param, 0) for param in func.params)
    )


def _without_names_of_indices(body: tirx.Stmt) -> tirx.Stmt:
    """Statements with integers that are made of the variables of loops in place of their names."""
    values: dict[ir.Var, ir.Expr] = {}

    def read(stmt: tirx.SeqStmt) -> tirx.Stmt:
        kept = []
        for child in stmt.seq:
            if isinstance(child, tirx.Bind) and _is_index(child.value):
                values[child.var] = child.value
            else:
                kept.append(child)
        return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)

    def value(var: ir.Var) -> ir.Expr:
        if var not in values:
            return var
        return tvm_ffi.structural_map(values[var], (ir.Var, value))

    return tvm_ffi.structural_map(
        tvm_ffi.structural_map(body, (tirx.SeqStmt, read)), (ir.Var, value)
    )


def _is_index(expr: ir.Expr) -> bool:
    reads: list[ir.Expr] = []
    tvm_ffi.structural_walk(expr, ((ir.TensorLoad, ir.Call, tirx.Let), reads.append))
    return "int" in str(expr.ty.dtype) and not reads


def _buffer(node: tirx.BufferStore | ir.TensorLoad) -> ir.Var:
    return node.buffer if isinstance(node, tirx.BufferStore) else node.source


def _type(buffer: ir.Var) -> str:
    return str(buffer.ty.dtype.dtype)


def _constant(indices: list[ir.Expr]) -> int:
    if len(indices) != 1:
        return 0
    (index,) = indices
    if isinstance(index, tirx.IntImm):
        return int(index)
    is_sum = isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm)
    return int(index.b) if is_sum else 0
