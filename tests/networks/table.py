"""The table of networks in the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

BEGIN = "<!-- networks: written by `make networks` -->"
END = "<!-- end of networks -->"
_HEADER = (
    *("network", "source", "parameters", "ops", "fused", "keep-all MiB", "at", "gradient error"),
    *("five steps", "numeric", "float32", "(torch's)", "compared at"),
)


def write_table(readme: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Put the rows between the markers of the file."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no lines {BEGIN!r} and {END!r} to write the table between")
    table = "\n".join([_line(_HEADER), _line(["---"] * len(_HEADER)), *map(_row, rows)])
    readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _row(row: Mapping[str, object]) -> str:
    source = str(row["source"])
    return _line(
        [
            str(row["name"]).removeprefix(f"{source} "),
            source,
            f"{row['parameters']:,}",
            str(row["ops_unfused"]),
            str(row["ops"]),
            f"{int(str(row['keep_all_bytes'])) / 2**20:,.1f}",
            _setting(row["full"]),
            *(_error(row[key]) for key in ("gradient_error", "change_error", "directional_error")),
            *(_error(row[key]) for key in ("float32_error", "torch_float32_error")),
            _setting(row["checked"]),
        ]
    )


def _setting(value: object) -> str:
    assert isinstance(value, list)
    batch, size = value
    return f"{batch} x {size}"


def _error(value: object) -> str:
    return f"{float(str(value)):.0e}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
