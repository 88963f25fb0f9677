"""A table of the memory that several models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.planning.shared_budget import SharedMemory
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes


def print_shared_memory(
    console: Console, memory: Sequence[SharedMemory], measured_bytes: Mapping[str, int]
) -> None:
    """Print for each device the state of each model, what all use in turns, and the arena of all."""
    table = framed("memory of all models together")
    names = list(memory[0].state_bytes)
    table.add_column("")
    add_number_columns(table, *(one.device for one in memory))
    rows = {
        "budget": [
            "no limit" if one.budget_bytes == UNLIMITED_BYTES else format_bytes(one.budget_bytes)
            for one in memory
        ],
        **{
            f"state of {name}": [format_bytes(one.state_bytes[name]) for one in memory]
            for name in names
        },
        "used in turns": [format_bytes(one.shared_bytes) for one in memory],
        "planned arena": [format_bytes(one.arena_bytes) for one in memory],
        "measured peak": [format_bytes(measured_bytes[one.device]) for one in memory],
        "in arenas of their own": [format_bytes(one.apart_bytes) for one in memory],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)
