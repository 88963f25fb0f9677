"""Write the kernel of a piece for one slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from tvm_xengine.kernels.library.parts import (
    KernelParts,
    Part,
    kernel_parts,
    name_attributes,
    with_parts,
)
from tvm_xengine.kernels.slices.pieces import Division, Piece, divide
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR, OPTIONS_ATTR, PARTS_ATTR
from tvm_xengine.scheduling.replicas.batch_cut import Span

_Node = TypeVar("_Node", tirx.Stmt, ir.Expr)

_OF_THE_WHOLE = (KERNEL_ATTR, OPTIONS_ATTR, PARTS_ATTR, "global_symbol")

_SHAPE_OPTIONS = {"data_shape": 0, "output_shape": 0, "output_batch": 2}
"""Options that repeat the shape of the result, and how many of its last dimensions they leave out."""


def piece_kernels(
    division: Division, piece: Piece, spans: Sequence[Span]
) -> tuple[tirx.PrimFunc, ...]:
    """The kernel of a piece for each slice, one and the same for slices of a size where no position counts.

    A whole piece has one kernel.
    """
    if piece.is_whole:
        return (_kernel_of(division, piece, Span(0, division.parts)),)
    if not _is_everywhere_alike(division, piece):
        return tuple(_kernel_of(division, piece, span) for span in spans)
    of_size: dict[int, tirx.PrimFunc] = {}
    for span in spans:
        if span.count not in of_size:
            first = Span(0, span.count)
            func = _kernel_of(division, piece, first)
            of_size[span.count] = _named(division, func, first) if division.is_one_piece else func
    return tuple(of_size[span.count] for span in spans)


def _is_everywhere_alike(division: Division, piece: Piece) -> bool:
    """Whether the kernel of a slice does not depend on where the slice lies."""
    first, second = (_kernel_of(division, piece, Span(number, 1)) for number in (0, 1))
    return bool(tvm_ffi.structural_equal(first, second))


def _kernel_of(division: Division, piece: Piece, span: Span) -> tirx.PrimFunc:
    """The kernel of a slice."""
    kernel, root = division.kernel, division.kernel.body.block
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    writer = _Writer(division, {} if piece.is_whole else _smaller(division, span), span)
    body = [writer.nest(block, nests[block], is_whole=piece.is_whole) for block in piece.blocks]
    made = [b for block in piece.blocks for b in division.blocks[block].written]
    kept = [writer.buffer(b) for b in dict.fromkeys(made) if b not in piece.outputs]
    inner = s_tir.SBlock(
        [], [], [], root.name_hint, body[0] if len(body) == 1 else tirx.SeqStmt(body), None, kept
    )
    params = [writer.buffer(b) for b in (*piece.inputs, *piece.outputs)]
    func = tirx.PrimFunc(
        params, s_tir.SBlockRealize([], True, inner), kernel.ret_type, kernel.attrs
    )
    for name in _OF_THE_WHOLE:
        func = func.without_attr(name)
    return func


def _smaller(division: Division, span: Span) -> Mapping[ir.Var, ir.Var]:
    """For each sliced buffer one of the size of a slice."""
    found = {}
    for buffer, dimension in division.sliced.items():
        shape = list(buffer.ty.shape)
        extent = int(shape[dimension]) // division.parts * span.count
        shape[dimension] = tirx.IntImm(shape[dimension].ty, extent)
        found[buffer] = tirx.decl_buffer(shape, str(buffer.ty.dtype.dtype), name=buffer.name)
    return found


class _Writer:
    """Writes blocks for one slice.

    Parameters
    ----------
    smaller
        The buffers of a slice in place of those of the whole.
    """

    def __init__(self, division: Division, smaller: Mapping[ir.Var, ir.Var], span: Span) -> None:
        self.division = division
        self.smaller = smaller
        self.span = span

    def buffer(self, buffer: ir.Var) -> ir.Var:
        return self.smaller.get(buffer, buffer)

    def nest(self, number: int, nest: tirx.Stmt, *, is_whole: bool) -> tirx.Stmt:
        """The loops of a block, the one that is shared out only over its share."""
        axis = None if is_whole else self.division.shared[number].axis
        loops = []
        while isinstance(nest, tirx.For):
            loops.append(nest)
            nest = nest.body
        block = nest.block
        shares = {}
        iter_vars = []
        for one, value in zip(block.iter_vars, nest.iter_values, strict=True):
            if axis is not None and one.var.same_as(axis.var):
                share = axis.extent // self.division.parts * self.span.count
                extent = tirx.IntImm(one.dom.extent.ty, share)
                shares[value] = extent
                one = tirx.IterVar(ir.Range(0, extent), one.var, one.iter_type)
            iter_vars.append(one)
        inside = self._inside(number, is_whole=is_whole)
        body: tirx.Stmt = s_tir.SBlockRealize(
            nest.iter_values,
            nest.predicate,
            s_tir.SBlock(
                iter_vars,
                [inside.region(region) for region in block.reads],
                [inside.region(region) for region in block.writes],
                block.name_hint,
                inside.stmt(block.body),
                None if block.init is None else inside.stmt(block.init),
            ),
        )
        for loop in reversed(loops):
            extent = shares.get(loop.loop_var, loop.extent)
            body = tirx.For(loop.loop_var, loop.min, extent, loop.kind, body)
        return body

    def _inside(self, number: int, *, is_whole: bool) -> _Inside:
        axis = self.division.shared[number].axis
        if is_whole or axis is None:
            return _Inside(self, {})
        start = axis.extent // self.division.parts * self.span.first
        return _Inside(self, {axis.var: axis.var + start} if start else {})


class _Inside:
    """Rewrites what stands in a block: positions count from the start of the whole tensor,
    except where they index a slice."""

    def __init__(self, writer: _Writer, moved: Mapping[ir.Var, ir.Expr]) -> None:
        self.writer = writer
        self.moved = moved
        # It knows no extents: rules for schedules look for the axis of one position, too.
        self.analyzer = sym.Analyzer()

    def stmt(self, stmt: tirx.Stmt) -> tirx.Stmt:
        return self._mapped(stmt)

    def _mapped(self, node: _Node) -> _Node:
        return tvm_ffi.structural_map(
            node,
            [
                (ir.TensorLoad, self._load),
                (tirx.BufferStore, self._store),
                (ir.Var, lambda var: self.moved.get(var, var)),
            ],
        )

    def region(self, region: ir.TensorRegion) -> ir.TensorRegion:
        least = [self._mapped(one.min) for one in region.region]
        extents = [self._mapped(one.extent) for one in region.region]
        index = self._index(region.source, least)
        ranges = [ir.Range.from_min_extent(*pair) for pair in zip(index, extents, strict=True)]
        return tirx.BufferRegion(self.writer.buffer(region.source), ranges)

    def _load(self, load: ir.TensorLoad) -> ir.Expr:
        buffer = self.writer.buffer(load.source)
        if buffer.same_as(load.source):
            return load
        return buffer[tuple(self._index(load.source, load.indices))]

    def _store(self, store: tirx.BufferStore) -> tirx.Stmt:
        buffer = self.writer.buffer(store.buffer)
        if buffer.same_as(store.buffer):
            return store
        return tirx.BufferStore(buffer, store.value, self._index(store.buffer, store.indices))

    def _index(self, buffer: ir.Var, index: Sequence[ir.Expr]) -> list[ir.Expr]:
        at = list(index)
        smaller = self.writer.buffer(buffer)
        if not smaller.same_as(buffer) and self.moved:
            dimension = self.writer.division.sliced[buffer]
            unit = int(buffer.ty.shape[dimension]) // self.writer.division.parts
            offset = self.writer.span.first * unit
            at[dimension] = self.analyzer.simplify(at[dimension] - offset)
        return at


def _named(division: Division, sliced: tirx.PrimFunc, span: Span) -> tirx.PrimFunc:
    """The kernel of a slice, which says what it computes where the whole one does."""
    kernel = division.kernel
    whole = kernel_parts(kernel)
    if whole is None or len(sliced.params) != len(kernel.params):
        return _with_own_name(kernel, sliced)
    if kernel.attrs and PARTS_ATTR in kernel.attrs:
        parts = _sliced_parts(division, whole, span)
        return sliced if parts is None else with_parts(sliced, parts)
    return _with_own_name(kernel, sliced)


def _with_own_name(kernel: tirx.PrimFunc, sliced: tirx.PrimFunc) -> tirx.PrimFunc:
    is_named = kernel.attrs and KERNEL_ATTR in kernel.attrs
    if not is_named or len(sliced.params) < len(kernel.params):  # without what it did not read
        return sliced
    part = Part(kernel, ())
    old = [tuple(map(int, param.ty.shape)) for param in kernel.params]
    new = [tuple(map(int, param.ty.shape)) for param in sliced.params]
    options = dict(part.options)
    for name, left_out in _SHAPE_OPTIONS.items():
        # A sum that is added to stands before the result.
        for before, after in zip(reversed(old), reversed(new), strict=False):
            if name in options and options[name] == before[: len(before) - left_out]:
                options[name] = after[: len(after) - left_out]
                break
    return sliced.with_attrs(name_attributes(part.name, **options))


def _sliced_parts(division: Division, whole: KernelParts, span: Span) -> KernelParts | None:
    """The parts of a fused kernel on a slice, None where one of them does not work on slices alone."""
    at = dict(enumerate(division.kernel.params[: whole.num_inputs]))
    sliced = {number: division.sliced[b] for number, b in at.items() if b in division.sliced}
    parts = []
    for place, part in enumerate(whole.parts):
        inputs = {k: sliced[number] for k, number in enumerate(part.inputs) if number in sliced}
        if not inputs:
            parts.append(part)
            continue
        divided = divide(part.func, inputs, (), division.parts)
        if divided is None or not divided.is_one_piece:
            return None
        if not _is_everywhere_alike(divided, divided.pieces[0]):
            return None
        (func,) = piece_kernels(divided, divided.pieces[0], [span])
        if len(func.params) != len(part.func.params):
            return None
        parts.append(Part(func, part.inputs))
        if (dimension := divided.sliced.get(part.func.params[-1])) is not None:
            sliced[whole.value_of(place)] = dimension
        elif place < len(whole.parts) - 1:
            return None
    return KernelParts(whole.num_inputs, tuple(parts))
