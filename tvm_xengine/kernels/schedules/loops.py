"""Write loop nests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.blocks import Axis

ForKind = tirx.ForKind


def loop(
    extent: ir.Expr | int,
    body: Callable[[ir.Expr], tirx.Stmt],
    name: str,
    kind: tirx.ForKind = ForKind.SERIAL,
    *,
    dtype: str = "int32",
) -> tirx.Stmt:
    """``for name in range(extent): body(name)``; just the body where the extent is 1."""
    if isinstance(extent, int) and extent == 1:
        return body(tirx.const(0, dtype))
    var = ir.Var(name, dtype)
    stop = tirx.const(extent, dtype) if isinstance(extent, int) else extent
    return tirx.For(var, tirx.const(0, dtype), stop, kind, body(var))


def nest(
    extents: Sequence[int], body: Callable[[list[ir.Expr]], tirx.Stmt], name: str, dtype: str
) -> tirx.Stmt:
    """Serial loops over all of `extents`, the last one innermost."""

    def level(done: list[ir.Expr]) -> tirx.Stmt:
        if len(done) == len(extents):
            return body(done)
        return loop(
            extents[len(done)], lambda i: level([*done, i]), f"{name}{len(done)}", dtype=dtype
        )

    return level([])


def share(
    total: int,
    workers: int,
    body: Callable[[ir.Expr], tirx.Stmt],
    name: str,
    *,
    dtype: str,
    setup: Sequence[tirx.Stmt] = (),
) -> tirx.Stmt:
    """Run ``body(0), ... body(total - 1)`` in equal shares on `workers` threads.

    Every thread runs `setup` first, which may allocate what its share needs.
    """
    workers = min(workers, total)
    each = -(-total // workers)

    def one_worker(worker: ir.Expr) -> tirx.Stmt:
        def item(i: ir.Expr) -> tirx.Stmt:
            return body(worker * each + i)

        extent = each if each * workers == total else tirx.min(each, total - worker * each)
        return sequence([*setup, loop(extent, item, name, dtype=dtype)])

    return loop(workers, one_worker, f"{name}_worker", ForKind.PARALLEL, dtype=dtype)


def sequence(stmts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """One statement that runs several."""
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))


def unravel(position: ir.Expr, axes: Sequence[Axis]) -> dict[ir.Var, ir.Expr]:
    """The variables of axes at a row-major position over all of them."""
    values: dict[ir.Var, ir.Expr] = {}
    for number, axis in enumerate(reversed(axes)):
        is_first = number == len(axes) - 1
        values[axis.var] = position if is_first else tirx.floormod(position, axis.extent)
        position = tirx.floordiv(position, axis.extent)
    return values


def ravel(position: Sequence[ir.Expr], extents: Sequence[int]) -> ir.Expr | int:
    """The row-major number of a position."""
    flat: ir.Expr | int = 0
    for index, extent in zip(position, extents, strict=True):
        flat = flat * extent + index
    return flat
