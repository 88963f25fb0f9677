"""Parsing and printing of byte counts such as ``192KiB``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

# Decimal and binary prefixes (IEC 80000-13).
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tb": 10**12,
    "tib": 2**40,
}
_NO_MEMORY_BYTES = 2**53
"""Beyond it not every whole number is a float, and no machine has so much memory."""

UNLIMITED_BYTES = _NO_MEMORY_BYTES - 1
"""Budget of a device whose memory does not count."""

MOST_RATIO = 1e6
"""A budget of a million times what keep-all needs is a slip; no double overflows below it."""

_PATTERN = re.compile(r"\s*([0-9]+(\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """Number of bytes that `text` stands for: ``4096``, ``"192KiB"``, ``"1.5 MB"``.

    Raises
    ------
    ValueError
        If `text` is not a non-negative number below 2^53 with an optional unit.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ValueError(f"expected a size of at least 0 bytes, got {text}")
        if text >= _NO_MEMORY_BYTES:
            raise ValueError("expected a size below 2^53 bytes")
        return text
    match = _PATTERN.fullmatch(str(text))
    unit = _UNITS.get("none" if match is None else match[3].lower())
    if match is None or unit is None or (unit == 1 and match[2]):
        raise ValueError(f"expected a size such as 4096, 192KiB, 2MiB or 1.5GB, got {str(text)!r}")
    size_bytes = float(match[1]) * unit
    if not size_bytes < _NO_MEMORY_BYTES:
        raise ValueError(f"expected a size below 2^53 bytes, got {str(text)[:20]!r}")
    return int(size_bytes)


def format_bytes(size_bytes: int) -> str:
    """`size_bytes` with a binary unit and four digits: ``"1.907 MiB"``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def format_exactly(size_bytes: int) -> str:
    """`size_bytes` as `parse_bytes` reads it back, in the largest unit that divides it: ``2MiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def format_budgets(budget_bytes: Mapping[str, int]) -> str:
    """Bytes of devices in the form of the command line: ``cpu=2MiB gpu=300B``.

    Devices whose memory is not limited are left out.
    """
    return " ".join(
        f"{device}={format_exactly(size)}"
        for device, size in budget_bytes.items()
        if size < UNLIMITED_BYTES
    )


def round_up(size_bytes: int, alignment_bytes: int) -> int:
    """The smallest multiple of `alignment_bytes` that is at least `size_bytes`."""
    return -(-size_bytes // alignment_bytes) * alignment_bytes


_ELEMENT = re.compile(r"[a-z]+?(\d+)(?:_[a-z0-9]+)?(?:x(\d+))?")


def element_bits(dtype: str) -> int:
    """Bits of an element of a type as TVM and numpy name it: 32 of ``float32``, 8 of ``bool``."""
    if dtype == "bool":
        return 8
    match = _ELEMENT.fullmatch(dtype)
    if match is None:
        raise ValueError(f"expected an element type such as float32 or int8, got {dtype!r}")
    return int(match.group(1)) * int(match.group(2) or 1)


def format_type(shape: Sequence[int], dtype: str) -> str:
    """Type and shape, ``float32[16, 3, 32, 32]``; empty where the type is unknown."""
    return f"{dtype}{list(shape)}" if dtype else ""


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a compact tensor; each element takes whole bytes."""
    return math.prod(shape) * (-(-element_bits(dtype) // 8))
