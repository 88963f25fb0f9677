"""The C functions that write and read checkpoints, by the names of tensors, and in slots."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.aot.emit_c.checkpoints.c_text import LOAD, RECORDS, SAVE, SLOTS
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
    """A tensor that checkpoints name: kept in a region, a setting, or frozen in flash."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    region: int = 0
    offset_bytes: int = 0
    frozen: str = "NULL"

    @property
    def of_training(self) -> bool:
        """Whether only the optimizer or the run needs it."""
        return not self.name.startswith(OF_MODEL)


def checkpoint_functions(package: Package) -> str:
    """The C functions that save and load checkpoints."""
    kept, frozen = _kept_rows(package), _frozen_rows(package)
    # A table of C has a row, also where nothing is kept.
    rows = [*kept, *frozen] or [_Row("", "float32", (), 0)]
    names = [len(row.name.encode()) for row in rows]
    ranks = [len(row.shape) for row in rows]
    longest = max(record_bytes(row.name, len(row.shape), 0) for row in rows)
    fields = {
        "name": package.name,
        "MACRO": package.macro,
        "CHECK_CTX": CHECK_CTX,
        "parts": ",\n".join(_part(row) for row in rows),
        "kept": len(kept),
        "rows": len(kept) + len(frozen),
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
        rows.append(_Row(name, str(value.dtype), value.shape, value.nbytes, frozen=where))
    return rows


def _part(row: _Row) -> str:
    shape = ", ".join(f"{extent}u" for extent in row.shape) or "0u"
    return (
        f'    {{"{_escaped(row.name)}", {row.frozen}, {row.offset_bytes}u, {row.size_bytes}u,'
        f" {len(row.name.encode())}u, {row.region}u, {TYPES.index(row.dtype)}u,"
        f" {len(row.shape)}u, {int(row.of_training)}u, {{{shape}}}}}"
    )


def _escaped(name: str) -> str:
    """`name` as the inside of a C string; octal escapes, because hexadecimal ones have no end."""
    plain = (32, *range(35, 63), *range(64, 92), *range(93, 127))  # all but quote, ? and backslash
    return "".join(chr(b) if b in plain or b == 33 else f"\\{b:03o}" for b in name.encode())


def _each(package: Package, line: str) -> str:
    return "\n".join(line.format(at=at, name=name) for at, name in enumerate(package.hyper))
