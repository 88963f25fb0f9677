"""Rows of tables, derived from those that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tvm_xengine.cost_models.labels.held_out import LEDGER, looks
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS

Row = dict[str, Any]


def smallest_budgets(rows: list[Row]) -> list[Row]:
    """Budgets in MiB, their ratios, and times as multiples of keep-all."""
    kinds = {"usual": "usual", "variants": "variants", "slices": "after"}

    def times(row: Row, kind: str) -> str:
        found = row.get(f"{kind}_us")
        return "-" if found is None else f"{found / row['keep_all_us']:.2f}"

    shown = []
    for row in rows:
        state, after = row["state_bytes"], row["after_bytes"]
        before = row.get("usual_bytes", row["variants_bytes"])
        sizes = {"state": state, "keep-all": row["keep_all_bytes"]}
        sizes |= {name: row.get(f"{kind}_bytes") for name, kind in kinds.items()}
        shown.append(
            {
                **_keys(row, "network", "batch"),
                **{name: size and f"{size / 2**20:.2f}" for name, size in sizes.items()},
                "number of slices": row["slices"],
                "ratio": f"{after / before:.2f}",
                "beside state": f"{(after - state) / (before - state):.2f}",
                "times": ", ".join(times(row, kind) for kind in kinds.values()),
            }
        )
    return shown


def scaling(rows: list[Row]) -> list[Row]:
    """Times in ms, and shares of a step."""
    alone_us = {row["network"]: row["step_us"] for row in rows if row["machines"] == 1}
    shown = []
    for row in rows:
        step_us = row["step_us"]
        shown.append(
            {
                **_keys(row, "network", "link", "machines", "batch", "ops"),
                "bucket": f"{row['bucket_bytes'] >> 10} KiB" if row["bucket_bytes"] else "each",
                "step ms": f"{step_us / 1000:.2f}",
                "computes ms": f"{row['compute_us'] / 1000:.2f}",
                "network busy ms": f"{row['network_us'] / 1000:.2f}",
                "exposed": f"{1 - row['compute_us'] / step_us:.1%}",
                "efficiency": f"{alone_us[row['network']] / step_us:.1%}",
                "gap": f"{1 - row['bound_us'] / step_us:.2%}",
                "solve s": f"{row['solve_s']:.0f}",
            }
        )
    return shown


def ledger() -> list[Row]:
    """The lines of the shipped ledger, the newest first."""
    lines = looks(SHIPPED_LABELS / LEDGER)
    return [{"number": number, **asdict(look)} for number, look in enumerate(lines)][::-1]


def judgements(rows: list[Row]) -> list[Row]:
    """Errors in per cent."""
    return [
        {
            "_run": {name: row[name] for name in ("date", "commit", "machine", "versions")},
            "unseen": row["scope"],
            **_keys(row, "model", "kernels"),
            "median error": f"{row['median_error_ratio']:.1%}",
            "total": f"{row['total_ratio']:.2f}",
            "inside": f"{row['coverage_ratio']:.0%}",
            "why": row["why"],
        }
        for row in rows
    ]


def _keys(row: Mapping[str, Any], *names: str) -> Row:
    """Some columns, and the run of the row where it was recorded."""
    return {name: row[name] for name in (*names, "_run") if name in row}
