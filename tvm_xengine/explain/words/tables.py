"""An explanation as tables and sentences for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tvm_xengine.explain.explanation import (
    DeviceFinding,
    Explanation,
    OpFinding,
    TensorFinding,
)
from tvm_xengine.explain.fates import Fate
from tvm_xengine.explain.memory import TimePoint
from tvm_xengine.explain.prices.speedups import FASTER_RATIO, Speedup
from tvm_xengine.explain.words.framed import framed
from tvm_xengine.explain.words.sentences import (
    at_in_words,
    difference_in_words,
    fate_in_words,
    price_from_bound,
    price_in_words,
    price_of_memory,
    smallest_in_words,
    stay_in_words,
)
from tvm_xengine.explain.words.short_answers import during_in_words, why_in_words
from tvm_xengine.planning.alternatives.changed_schedule import Alternative
from tvm_xengine.scheduling.durations import format_amount, format_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes, format_type

_MOST_LAYERS = 6
"""Layers that are named at a time point, the largest first."""
_MOST_TOLD = 16
"""Tensors or ops with a row of their own, the largest first: two screens of them."""
_MOST_IN_FULL = 3
"""With more tensors or ops than these, they share a table."""


def shown(explanation: Explanation) -> Iterator[RenderableType]:
    """The parts of an explanation, for a console of 80 columns or more."""
    if len(explanation.devices) > 0:
        yield Text(
            f"{explanation.objective} {format_amount(explanation.value, explanation.unit)}",
            "bold",
        )
        yield Text(" ".join(explanation.proof))
    for device in explanation.devices:
        yield from _device(device, explanation.value, explanation.unit)
    if len(explanation.ops) <= _MOST_IN_FULL:
        for op in explanation.ops:
            yield from _op(op, explanation.unit)
    else:
        yield from _ops(explanation.ops, explanation.unit)
    if len(explanation.tensors) <= _MOST_IN_FULL:
        for tensor in explanation.tensors:
            yield from _tensor(tensor, explanation.unit)
    else:
        yield from _tensors(explanation.tensors, explanation.unit)
    if explanation.speedups:
        yield _speedups(explanation.speedups, explanation.unit)


def _device(device: DeviceFinding, value: float, unit: str) -> Iterator[RenderableType]:
    is_limited = device.budget_bytes < UNLIMITED_BYTES
    budget = format_bytes(device.budget_bytes) if is_limited else "no limit"
    yield Text(
        f"\n{device.device}: budget {budget}, arena {format_bytes(device.arena_bytes)},"
        f" live peak {format_bytes(device.peak_bytes)}",
        "bold",
    )
    for point in device.time_points:
        yield from _time_point(point, is_limited=is_limited)
    if device.smallest is not None:
        yield Text(smallest_in_words(device.smallest))
    if device.price is not None:
        yield Text(price_of_memory(device.price, value, unit))
    if device.bound_price is not None:
        is_alone = device.price is None
        if said := price_from_bound(device.bound_price, value, unit, is_alone=is_alone):
            yield Text(said)


def _time_point(point: TimePoint, *, is_limited: bool) -> Iterator[RenderableType]:
    room = f", {format_bytes(point.room_bytes)} left" if is_limited else ""
    binds = (
        "; it binds: not everything that is dropped or elsewhere then would fit"
        if point.binds
        else ""
    )
    yield Text(
        f"Step {point.step}, {during_in_words(point)}: {format_bytes(point.live_bytes)} live{room}"
        f"{binds}"
    )
    table = _table("category", "bytes", "layer", "bytes", "tensor", "bytes")
    rows = max(len(point.category_bytes), min(_MOST_LAYERS, len(point.layer_bytes)))
    categories, layers = _rows(point.category_bytes), _rows(point.layer_bytes)
    for k in range(rows):
        held = point.largest[k] if k < len(point.largest) else None
        table.add_row(
            *_cell(categories, k),
            *_cell(layers[:_MOST_LAYERS], k),
            *(("", "") if held is None else (held.label, format_bytes(held.size_bytes))),
        )
    yield table


def _op(op: OpFinding, unit: str) -> Iterator[RenderableType]:
    where = ", ".join(f"step {position} on {device}" for position, device in op.runs)
    where_from = ", ".join(filter(None, (f"layer {op.layer}" if op.layer else "", op.line)))
    yield Text(f"\nop {op.name}{f' ({where_from})' if where_from else ''}", "bold")
    yield Text(f"Runs: {where or 'never'}.")
    costs = ", ".join(
        f"{format_us(us)} and {format_bytes(op.workspace_bytes[device])} of workspace on {device}"
        for device, us in op.compute_us.items()
    )
    yield Text(f"One run takes {costs}.")
    yield from _alternatives(op.alternatives, unit)


def _ops(ops: Sequence[OpFinding], unit: str) -> Iterator[RenderableType]:
    """The ops that take longest, each with its best alternative; the rest in a count."""
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1), show_lines=True)
    table.add_column("op", overflow="fold", ratio=2)
    table.add_column("takes", overflow="fold", ratio=2)
    table.add_column("instead", overflow="fold", ratio=2)
    slowest = sorted(ops, key=lambda op: -sum(op.compute_us[device] for _, device in op.runs))
    for op in slowest[:_MOST_TOLD]:
        what = "\n".join(filter(None, (op.name, ", ".join(filter(None, (op.layer, op.line))))))
        runs = Counter(device for _, device in op.runs)
        takes = "\n".join(
            f"{format_us(us)} on {device}, {_run(runs[device])}"
            for device, us in op.compute_us.items()
        )
        best = next(iter(op.alternatives), None)
        instead = (
            "no other way is valid"
            if best is None
            else f"{best.what}: {price_in_words(best, unit)}"
        )
        table.add_row(what, takes, instead)
    yield table
    if (others := len(ops) - _MOST_TOLD) > 0:
        yield Text(f"The other {others} ops take less. Name one to see its alternatives.")


def _run(times: int) -> str:
    if not times:
        return "not run there"
    return "run once" if times == 1 else f"run {times} times"


def _tensor(tensor: TensorFinding, unit: str) -> Iterator[RenderableType]:
    layer = f", layer {tensor.layer}" if tensor.layer else ""
    layer += f", {tensor.line}" if tensor.line else ""
    kind = format_type(tensor.shape, tensor.dtype)
    same = "" if tensor.label == tensor.name else f" ({tensor.name})"
    yield Text(
        f"\n{tensor.label}{same}: {format_bytes(tensor.size_bytes)} of {tensor.category}"
        f"{f', {kind}' if kind else ''}{layer}, {fate_in_words(tensor.fate)}",
        "bold",
    )
    for stay in tensor.fate.stays:
        yield Text(f"  {stay_in_words(stay)}")
    yield from _alternatives(tensor.alternatives or (), unit)


def _alternatives(alternatives: Sequence[Alternative], unit: str) -> Iterator[RenderableType]:
    if not alternatives:
        yield Text("No other way is valid.")
        return
    table = _table("instead, all else as planned", "difference", "over budget", no_wrap=())
    for one in alternatives:
        broken = "\n".join(
            f"{format_bytes(e.excess_bytes)} on {e.device}{at_in_words(e)}" for e in one.excess
        )
        table.add_row(one.what, difference_in_words(one.difference, unit), broken or "fits")
    yield table


def _tensors(tensors: Sequence[TensorFinding], unit: str) -> Iterator[RenderableType]:
    """What is not simply kept, and what was weighed; the rest in a count."""
    telling = [
        one
        for one in tensors
        if one.alternatives is not None or one.fate.fate in (Fate.RECOMPUTED, Fate.MOVED)
    ]
    telling.sort(key=lambda one: -one.size_bytes)
    if telling:
        table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1), show_lines=True)
        table.add_column("tensor", overflow="fold", ratio=2)
        table.add_column("why", overflow="fold", ratio=3)
        for one in telling[:_MOST_TOLD]:
            layer = f" of {one.layer}" if one.layer else ""
            layer += f" ({one.line})" if one.line else ""
            what = f"{one.label}\n{format_bytes(one.size_bytes)}{layer}, {fate_in_words(one.fate)}"
            why = why_in_words(one, unit)
            table.add_row(what, why)
        yield table
    told_names = {one.name for one in telling[:_MOST_TOLD]}
    if others := [one for one in tensors if one.name not in told_names]:
        kinds = {fate: sum(one.fate.fate is fate for one in others) for fate in Fate}
        told = ", ".join(f"{count} {fate.value}" for fate, count in kinds.items() if count)
        yield Text(f"The other {len(others)} tensors: {told}. Name one to see its alternatives.")


def _speedups(found: Sequence[Speedup], unit: str) -> RenderableType:
    table = _table(
        f"with this {100 * FASTER_RATIO:.0f} % faster", "runs", "takes", "gains", no_wrap=(1, 2, 3)
    )
    for one in found:
        what = f"{one.what}\n{one.place}" if one.place else one.what
        table.add_row(what, str(one.runs), format_us(one.busy_us), format_amount(one.gain, unit))
    return table


def _table(*columns: str, no_wrap: Sequence[int] = (1, 3, 5)) -> Table:
    table = framed()
    for k, column in enumerate(columns):
        right = k in no_wrap
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return table


def _rows(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name or "-", size) for name, size in sizes.items()]


def _cell(rows: Sequence[tuple[str, int]], k: int) -> tuple[str, str]:
    return (rows[k][0], format_bytes(rows[k][1])) if k < len(rows) else ("", "")
