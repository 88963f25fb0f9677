"""The code of a kernel that runs oneDNN's primitives."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import ir, tirx

from tvm_xengine.kernels.library.assembly import checked_call
from tvm_xengine.kernels.onednn.program import Placed, Program


def context_words(program: Program) -> int:
    """Length of the context that :func:`call_primitives` reads."""
    return 1 + len(program.placed) + 2 * len(program.executions)


def call_primitives(
    program: Program, tensors: Mapping[int, ir.Expr], context: ir.Var, threads: int
) -> list[tirx.Stmt]:
    """Statements that point every memory object to its tensor, and run the primitives in order.

    Parameters
    ----------
    tensors
        Address of each parameter of the program, and of its scratch memory.
    context
        Buffer of the words of :class:`OnednnContext`.
    """

    def word(position: int) -> ir.Expr:
        return tirx.BufferLoad(context, [tirx.const(position, "int64")])

    placed = program.placed
    point = [
        checked_call(
            "oneDNN", "dnnl_memory_set_data_handle", word(1 + m), _address(tensors, tensor)
        )
        for m, tensor in enumerate(placed)
    ]
    first = 1 + len(placed)
    run = [
        checked_call(
            "oneDNN",
            "dnnl_primitive_execute",
            word(first + 2 * k),
            word(0),
            tirx.const(len(execution.arguments), "int32"),
            word(first + 2 * k + 1),
        )
        for k, execution in enumerate(program.executions)
    ]
    before = tirx.Var("threads_before", "int32")
    return [
        tirx.Bind(before, tirx.call_extern("int32", "omp_get_max_threads")),
        _called("omp_set_num_threads", tirx.const(threads, "int32")),
        *point,
        *run,
        _called("omp_set_num_threads", before),
    ]


def _address(tensors: Mapping[int, ir.Expr], placed: Placed) -> ir.Expr:
    address = tensors[placed.parameter]
    if not placed.offset_bytes:
        return address
    return tirx.handle_add_byte_offset(address, tirx.const(placed.offset_bytes, "int64"))


def _called(function: str, *arguments: ir.Expr) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("int32", function, *arguments))
