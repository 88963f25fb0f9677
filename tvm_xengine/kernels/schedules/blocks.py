"""Read the blocks of an unscheduled kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, s_tir, tirx

Access = tuple[ir.Var, Sequence[ir.Expr]]
"""A buffer, and where it is loaded from or stored to."""


@dataclass(frozen=True)
class Axis:
    """One loop of a kernel: its variable runs over ``0 .. extent - 1``."""

    var: ir.Var
    extent: int


@dataclass(frozen=True)
class Load:
    """One read of a buffer by a block."""

    buffer: ir.Var
    index: tuple[ir.Expr, ...]


@dataclass(frozen=True)
class Block:
    """What a loop nest of its own computes, for every position of its axes.

    Attributes
    ----------
    spatial, summed
        Axes that number the elements it stores, and axes it reduces over.
    body, init
        The statement run at every position, and before the first position of the summed axes
        (None where nothing is).
    """

    spatial: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    body: tirx.Stmt
    init: tirx.Stmt | None

    @cached_property
    def stores(self) -> tuple[tirx.BufferStore, ...]:
        """The stores of the body, in order."""
        found: list[tirx.BufferStore] = []
        tvm_ffi.structural_walk(self.body, (tirx.BufferStore, found.append))
        return tuple(found)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """The loads of the body, less those of the buffers it stores to."""
        found: list[ir.TensorLoad] = []
        tvm_ffi.structural_walk(self.body, (ir.TensorLoad, found.append))
        stored = [store.buffer for store in self.stores]
        return tuple(
            Load(load.source, tuple(load.indices)) for load in found if load.source not in stored
        )

    @cached_property
    def only_stores(self) -> bool:
        """Whether the body is stores alone, without conditions or loops."""
        return _only_stores(self.body)

    @cached_property
    def written(self) -> frozenset[ir.Var]:
        """The buffers it stores to."""
        return frozenset(store.buffer for store in self.stores)

    @cached_property
    def accesses(self) -> Mapping[ir.Var, tuple[tuple[ir.Expr, ...], ...]]:
        """Where it loads and stores, for every buffer that it touches."""
        found: dict[ir.Var, list[tuple[ir.Expr, ...]]] = {}
        for load in self.loads:
            found.setdefault(load.buffer, []).append(load.index)
        for store in self.stores:
            found.setdefault(store.buffer, []).append(tuple(store.indices))
        return {buffer: tuple(indices) for buffer, indices in found.items()}


def read_blocks(func: tirx.PrimFunc) -> tuple[Block, ...] | None:
    """Return the blocks of a kernel in order, None when one is no plain loop nest of its own."""
    root = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    if root is None or root.match_buffers:
        return None
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    blocks = [_read_block(nest) for nest in nests]
    return tuple(block for block in blocks if block is not None) if all(blocks) else None


def with_accesses(
    stmt: tirx.Stmt, change: Callable[[ir.Var, Sequence[ir.Expr]], Access | None]
) -> tirx.Stmt:
    """A statement whose loads and stores go where `change` says; None leaves them."""

    def load(node: ir.TensorLoad) -> ir.Expr:
        changed = change(node.source, node.indices)
        return node if changed is None else changed[0][tuple(changed[1])]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        changed = change(node.buffer, node.indices)
        return node if changed is None else tirx.BufferStore(changed[0], node.value, changed[1])

    return tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load), (tirx.BufferStore, store)])


def intermediates(func: tirx.PrimFunc) -> tuple[ir.Var, ...]:
    """The buffers that a kernel allocates for itself."""
    return tuple(func.body.block.alloc_buffers)


def _read_block(nest: tirx.Stmt) -> Block | None:
    loops = []
    while isinstance(nest, tirx.For) and nest.kind == tirx.ForKind.SERIAL:
        loops.append(nest.loop_var)
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize) or not _is_plain(nest, loops):
        return None
    block = nest.block
    if block.alloc_buffers or block.match_buffers:
        return None
    kinds: dict[int, list[Axis]] = {tirx.IterVar.DataPar: [], tirx.IterVar.CommReduce: []}
    for axis in block.iter_vars:
        if axis.iter_type not in kinds:
            return None
        kinds[axis.iter_type].append(Axis(axis.var, int(axis.dom.extent)))
    spatial, summed = (tuple(axes) for axes in kinds.values())
    return Block(spatial, summed, block.body, block.init)


def _is_plain(realize: s_tir.SBlockRealize, loops: list[ir.Var]) -> bool:
    """Whether every axis of a block is one of the loops around it, or has one position only."""
    remaining = list(loops)
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if remaining and isinstance(value, ir.Var) and value.same_as(remaining[0]):
            remaining.pop(0)
        elif not (isinstance(value, tirx.IntImm) and int(axis.dom.extent) == 1):
            return False
    return not remaining


def _only_stores(stmt: tirx.Stmt) -> bool:
    if isinstance(stmt, tirx.SeqStmt):
        return all(_only_stores(child) for child in stmt.seq)
    return isinstance(stmt, (tirx.BufferStore, tirx.Bind))
