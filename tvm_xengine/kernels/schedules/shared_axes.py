"""Find the loops that all blocks of a kernel can share."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.blocks import Axis, Block

SharedAxis = tuple[Axis, ...]
"""For each block of a kernel its own axis; all have one extent and run in one common loop."""


def shared_axes(blocks: Sequence[Block]) -> tuple[SharedAxis, ...]:
    """Return the loops that may enclose all `blocks`, in the order of the last block's axes.

    A loop may enclose them when every buffer that passes between them is stored and loaded, at
    one of its dimensions, at the loop's own position: what an iteration reads, it wrote itself.
    """
    found = (_extend(axis, blocks) for axis in blocks[-1].spatial if axis.extent > 1)
    return tuple(axes for axes in found if axes is not None)


def partitioned_dimensions(
    buffer: ir.Var, blocks: Sequence[Block], axes: Sequence[SharedAxis]
) -> tuple[int, ...]:
    """The dimensions of a buffer at which every access is at the position of a shared loop."""
    dimensions: set[int] | None = None
    for number, block in enumerate(blocks):
        own = [axis[number].var for axis in axes]
        for index in block.accesses.get(buffer, ()):
            here = {d for d, i in enumerate(index) if _is_one_of(i, own)}
            dimensions = here if dimensions is None else dimensions & here
    return tuple(sorted(dimensions or ()))


def _extend(axis: Axis, blocks: Sequence[Block]) -> SharedAxis | None:
    """Find the axis of every block that must run together with one of the last block."""
    chosen: dict[int, Axis] = {len(blocks) - 1: axis}
    pending = [len(blocks) - 1]
    while pending:
        here = pending.pop()
        for there in range(len(blocks)):
            partners = _partners(blocks[here], blocks[there], chosen[here])
            if there == here or not partners:
                continue
            if len(partners) > 1 or not partners <= {a.var for a in blocks[there].spatial}:
                return None
            (var,) = partners
            partner = next(a for a in blocks[there].spatial if a.var.same_as(var))
            if partner.extent != axis.extent:
                return None
            if there not in chosen:
                chosen[there] = partner
                pending.append(there)
            elif not chosen[there].var.same_as(partner.var):
                return None
    if len(chosen) < len(blocks):
        return None
    return tuple(chosen[number] for number in range(len(blocks)))


def _partners(here: Block, there: Block, axis: Axis) -> set[ir.Expr]:
    """What block `there` uses where `here` uses `axis`, in the buffers that pass between them."""
    partners: set[ir.Expr] = set()
    for buffer in _linking_buffers(here, there):
        for mine in here.accesses[buffer]:
            dimensions = [d for d, index in enumerate(mine) if _is(index, axis.var)]
            if not dimensions:
                return {tirx.const(0, "int32")}
            for theirs in there.accesses[buffer]:
                partners |= {theirs[d] for d in dimensions}
    return partners


def _linking_buffers(here: Block, there: Block) -> set[ir.Var]:
    """The buffers that both blocks touch and at least one of them writes."""
    written = here.written | there.written
    return {buffer for buffer in here.accesses.keys() & there.accesses.keys() if buffer in written}


def _is(index: ir.Expr, var: ir.Var) -> bool:
    return isinstance(index, ir.Var) and bool(index.same_as(var))


def _is_one_of(index: ir.Expr, variables: Sequence[ir.Var]) -> bool:
    return any(_is(index, var) for var in variables)
