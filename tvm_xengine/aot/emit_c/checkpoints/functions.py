"""The C functions that write and read checkpoints, by the names of tensors, and in slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.aot.emit_c.checkpoints.c_text import LOAD, RECORDS, SAVE, SLOTS, STATE
from tvm_xengine.aot.emit_c.guards import no_rate
from tvm_xengine.aot.emit_c.status import CHECK_CTX
from tvm_xengine.aot.package.checkpoint_file import (
    HEADER_BYTES,
    RECORD_BYTES,
    TRAILER_BYTES,
    TYPES,
    VERSION,
    hash_of,
    optimizer_tag,
    record_bytes,
)
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.training.saved_names import OF_MODEL, OF_SETTING

_SETTINGS_REGION = 255
"""Stands for the settings, which lie in the context; a package has no so many regions."""


@dataclass(frozen=True)
class _Row:
    """A tensor that checkpoints name: kept in a region, a setting, or frozen in flash.

    Attributes
    ----------
    value
        The array that it starts as, or is; ``NULL`` for zeros.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    region: int = 0
    offset_bytes: int = 0
    value: str = "NULL"

    @property
    def of_training(self) -> bool:
        """Whether only the optimizer or the run needs it."""
        return not self.name.startswith(OF_MODEL)


def state_table(package: Package) -> str:
    """The table of what checkpoints hold, with the values by which state begins."""
    kept, frozen = _kept_rows(package), _frozen_rows(package)
    return STATE.format(
        parts=",\n".join(map(_part, _table(kept, frozen))),
        state=len(package.state),
        kept=len(kept),
        rows=len(kept) + len(frozen),
    )


def checkpoint_functions(package: Package) -> str:
    """The C functions that save and load checkpoints."""
    kept = _kept_rows(package)
    rows = _table(kept, _frozen_rows(package))
    names = [len(row.name.encode()) for row in rows]
    ranks = [len(row.shape) for row in rows]
    shapes = list(dict.fromkeys(row.shape for row in rows))
    longest = max(record_bytes(row.name, len(row.shape), 0) for row in rows)
    fields = {
        "name": package.name,
        "MACRO": package.macro,
        "CHECK_CTX": CHECK_CTX,
        "names": ",\n".join(_name(row, shapes.index(row.shape)) for row in rows),
        "shapes": ",\n".join(map(_shape, shapes)),
        "found": -(-len(rows) // 8),
        "settings_region": _SETTINGS_REGION,
        "settings": max(len(package.hyper), 1),
        "store": _each(package, "  values[{at}] = ctx->{name};") or "  values[0] = 0.0f;",
        "restore": _each(package, "  ctx->{name} = values[{at}];") or "  (void)values;",
        "may_be_set": "\n".join(
            f"  if ({no_rate(f'values[{at}]')}) return 0;" for at in range(len(package.hyper))
        ),
        "rank": max(*ranks, 1),
        "longest_name": max(*names, 1),
        "head": max(HEADER_BYTES, longest),
        "header": HEADER_BYTES,
        "record": RECORD_BYTES,
        "version": VERSION,
        "origin": f"0x{package.origin:016x}ull",
        "frozen": f"0x{hash_of(package.frozen_values):016x}ull",
        "optimizer": f"0x{optimizer_tag(row.name for row in kept):08x}u",
        "payload": checkpoint_bytes(package) - HEADER_BYTES - TRAILER_BYTES,
        "total": checkpoint_bytes(package),
    }
    return "\n\n".join(text.format(**fields) for text in (RECORDS, SAVE, LOAD, SLOTS))


def checkpoint_bytes(package: Package) -> int:
    """Size of a checkpoint."""
    rows = _kept_rows(package)
    records = sum(record_bytes(row.name, len(row.shape), row.size_bytes) for row in rows)
    return HEADER_BYTES + records + TRAILER_BYTES


def _table(kept: Sequence[_Row], frozen: Sequence[_Row]) -> Sequence[_Row]:
    """All rows; a table of C has one, also where nothing is kept."""
    return [*kept, *frozen] or [_Row("", "float32", (), 0)]


def _kept_rows(package: Package) -> list[_Row]:
    position = {region: at for at, region in enumerate(package.regions)}
    rows = [
        _Row(
            tensor.saved_name,
            tensor.place.dtype,
            tensor.place.shape,
            tensor.place.size_bytes,
            position[tensor.place.device],
            tensor.place.offset_bytes,
            "NULL" if tensor.starts_as_zero_bytes else f"{package.name}_initial_{tensor.c_name}",
        )
        for tensor in package.state
    ]
    rows += [
        _Row(f"{OF_SETTING}{name}", "float32", (), 4, _SETTINGS_REGION, 4 * at)
        for at, name in enumerate(package.hyper)
    ]
    return rows


def _frozen_rows(package: Package) -> list[_Row]:
    rows = []
    for name, constant in package.frozen.items():
        value = package.constants[constant]
        where = f"{package.name}_{constant}"
        rows.append(_Row(name, str(value.dtype), value.shape, value.nbytes, value=where))
    return rows


def _part(row: _Row) -> str:
    return (
        f"    {{{row.value}, {row.offset_bytes}u, {row.size_bytes}u, {row.region}u,"
        f" {TYPES.index(row.dtype)}u, {len(row.shape)}u, {int(row.of_training)}u}}"
    )


def _name(row: _Row, shape: int) -> str:
    return f'    {{"{_escaped(row.name)}", {len(row.name.encode())}u, {shape}u}}'


def _shape(shape: tuple[int, ...]) -> str:
    return "    {" + (", ".join(f"{extent}u" for extent in shape) or "0u") + "}"


def _escaped(name: str) -> str:
    """`name` as the inside of a C string; octal escapes, because hexadecimal ones have no end."""
    plain = (32, *range(35, 63), *range(64, 92), *range(93, 127))  # all but quote, ? and backslash
    return "".join(chr(b) if b in plain or b == 33 else f"\\{b:03o}" for b in name.encode())


def _each(package: Package, line: str) -> str:
    return "\n".join(line.format(at=at, name=name) for at, name in enumerate(package.hyper))
