"""The table of networks in the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN = "<!-- networks: written by `make networks` -->"
END = "<!-- end of networks -->"
_HEADER = (
    *("network", "source", "parameters", "ops", "fused", "keep-all MiB", "at", "gradient error"),
    *("five steps", "numeric", "float32", "(torch's)", "compared at"),
)


def write_table(readme: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put the rows between the markers of the file."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no lines {BEGIN!r} and {END!r} to write the table between")
    table = "\n".join([_line(_HEADER), _line(["---"] * len(_HEADER)), *map(_row, rows)])
    readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _row(row: Mapping[str, Any]) -> str:
    source, sizes, errors = row["source"], row["sizes"], row["float64"]
    return _line(
        [
            row["name"].removeprefix(f"{source} "),
            source,
            f"{sizes['parameters']:,}",
            str(sizes["ops_unfused"]),
            str(sizes["ops"]),
            f"{sizes['keep_all_bytes'] / 2**20:,.1f}",
            _setting(row["full"]),
            *(f"{errors[key]:.0e}" for key in ("gradient", "change", "directional")),
            *(f"{row[key]:.0e}" for key in ("float32", "torch_float32")),
            _setting(row["checked"]),
        ]
    )


def _setting(value: Sequence[int | None]) -> str:
    batch, size = value
    return str(batch) if size is None else f"{batch} x {size}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
