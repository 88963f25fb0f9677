"""Places for state that several functions of a package share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm_xengine.aot.plan.planned import StateLayout
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.relax_ir.types import SHORT_FLOATS, Array
from tvm_xengine.scheduling.sizes import format_budgets


def lay_out_state(values: Mapping[str, Array], machine: Machine) -> StateLayout:
    """One tensor behind the other, in the first region that holds them all.

    Raises
    ------
    NoScheduleError
        If no region does.
    """
    align = machine.platform.alignment_bytes
    size = sum(_rounded(value.nbytes, align) for value in values.values())
    fitting = [d.name for d in machine.platform.devices if size <= d.budget_bytes]
    if not fitting:
        sizes = {device.name: device.budget_bytes for device in machine.platform.devices}
        raise NoScheduleError(
            f"the state takes {size} bytes, but the regions have {format_budgets(sizes)}: one region"
            " must hold it",
            is_proven=True,
        )
    start = dict.fromkeys(machine.platform.index, 0)
    places, end = _one_behind_the_other(values, fitting[0], start, align)
    short = tuple(name for name, value in values.items() if str(value.dtype) in SHORT_FLOATS)
    return StateLayout(places, end, short=short)


def with_sums(layout: StateLayout, sums: Mapping[str, Array], machine: Machine) -> StateLayout:
    """`layout` with sums of gradients behind the state, in the first region that has room.

    Raises
    ------
    NoScheduleError
        If none has.
    """
    align = machine.platform.alignment_bytes
    size = sum(_rounded(value.nbytes, align) for value in sums.values())
    end = {name: _rounded(at, align) for name, at in layout.state_end_bytes.items()}
    for device in machine.platform.devices:
        if end[device.name] + size <= device.budget_bytes:
            places, ends = _one_behind_the_other(sums, device.name, end, align)
            return replace(layout, sums=places, sums_end_bytes=ends)
    raise NoScheduleError(
        f"sums of gradients take {size} bytes behind the state, and no region has so many left; train"
        " fewer parameters (--train-only), or enlarge a region"
    )


def _one_behind_the_other(
    values: Mapping[str, Array], region: str, start: Mapping[str, int], align: int
) -> tuple[dict[str, ArenaView], dict[str, int]]:
    at, places = start[region], {}
    for name, value in values.items():
        places[name] = ArenaView(region, at, tuple(value.shape), str(value.dtype))
        at += _rounded(value.nbytes, align)
    return places, {**start, region: at}


def _rounded(size_bytes: int, align: int) -> int:
    return -(-size_bytes // align) * align
