"""The page of networks in docs/results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.networks.network import Network, Setting

BEGIN = "<!-- networks: written by `make networks` -->"
END = "<!-- end of networks -->"
_HEADER = (
    *("network", "source", "parameters", "ops", "fused", "keep-all MiB", "at", "gradient error"),
    *("five steps", "numeric", "float32", "(torch's)", "compared at"),
)


Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By network and stage, what was measured."""


def write_table(page: Path, networks: Sequence[Network], figures: Figures) -> None:
    """Put a row for every network that has figures between the markers of the file."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no lines {BEGIN!r} and {END!r} to write the table between")
    rows = [_row(network, figures[network.name]) for network in networks if network.name in figures]
    table = "\n".join([_line(_HEADER), _line(["---"] * len(_HEADER)), *rows, "", _runs(figures)])
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _runs(figures: Figures) -> str:
    """What the figures were measured with."""
    found = [row.get("_run") for stages in figures.values() for row in stages.values()]
    runs = {f"commit {run['commit']} on {run['date']}" for run in found if run}
    machines = {f"{run['machine']}, {run['versions']}" for run in found if run}
    if None in found:
        runs.add("commits that were not recorded")
    return (
        f"Measured at {', '.join(sorted(runs))}{''.join(f'; {each}' for each in sorted(machines))}."
    )


def _row(network: Network, stages: Mapping[str, Mapping[str, Any]]) -> str:
    sizes, double, single = (stages.get(stage) for stage in ("sizes", "float64", "float32"))
    return _line(
        [
            network.name.removeprefix(f"{network.source} "),
            network.source,
            f"{sizes['parameters']:,}" if sizes else "-",
            f"{sizes['ops_unfused']}" if sizes else "-",
            f"{sizes['ops']}" if sizes else "-",
            f"{sizes['keep_all_bytes'] / 2**20:,.1f}" if sizes else "-",
            _setting(network.full),
            *(_error(double, key) for key in ("gradient", "change", "directional")),
            *(_error(single, key) for key in ("gradient", "torch_gradient")),
            _setting(network.checked),
        ]
    )


def _error(row: Mapping[str, Any] | None, key: str) -> str:
    return "-" if row is None or row[key] is None else f"{row[key]:.0e}"


def _setting(setting: Setting) -> str:
    return f"{setting.batch}" if setting.size is None else f"{setting.batch} x {setting.size}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
