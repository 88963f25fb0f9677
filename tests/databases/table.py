"""A table of verdicts in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.databases.verdict import Status, Verdict

_LONGEST_REASON = 160
"""Characters of a reason that fit into a row."""
_ADVICE = "; replace them"
"""Where the advice of a refusal begins, which is the same for all."""


def write_table(verdicts: Iterable[Verdict], path: Path) -> None:
    """Write what became of every operator, one row each, with totals on top."""
    by_operator: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        by_operator.setdefault((verdict.database, verdict.operator), []).append(verdict)
    lines = [
        "# PyTorch operators and modules",
        "",
        "Samples of PyTorch's own databases (`op_db`, `module_db`), spread evenly over those of each"
        " operator (the rows say how many), are exported, imported and run once forwards and backwards"
        " in float64, and compared with autograd. Random: only shapes and types are compared. Crashed:"
        " the importer names the operator and an inner error as the reason. Written by"
        " `python -m tests.databases.torch_walk --table FILE`.",
        "",
        "| database | operators | all samples equal | "
        + " | ".join(f"samples {status.value}" for status in Status)
        + " |",
        "|" + "---|" * (len(Status) + 3),
    ]
    for database in sorted({key[0] for key in by_operator}):
        groups = [group for key, group in by_operator.items() if key[0] == database]
        counts = Counter(one.status for group in groups for one in group)
        whole = sum(all(one.status in _GOOD for one in group) for group in groups)
        numbers = " | ".join(str(counts[status]) for status in Status)
        lines.append(f"| {database} | {len(groups)} | {whole} | {numbers} |")
    for database in sorted({key[0] for key in by_operator}):
        lines += ["", f"## {database}", "", "| operator | samples | reason |", "|---|---|---|"]
        lines += [
            _row(key[1], group) for key, group in sorted(by_operator.items()) if key[0] == database
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


_GOOD = (Status.EQUAL, Status.RANDOM, Status.NOT_EXPORTABLE)


def _row(operator: str, group: list[Verdict]) -> str:
    counts = Counter(one.status for one in group)
    samples = ", ".join(f"{counts[one]} {one.value}" for one in Status if counts[one])
    reasons = dict.fromkeys(
        _plain(one.reason) for one in group if one.reason and one.status is not Status.EQUAL
    )
    return f"| `{operator}` | {samples} | {'; '.join(list(reasons)[:2])} |"


def _plain(reason: str) -> str:
    """A reason without the names of a sample's tensors and without advice, short enough for a row."""
    bare = re.sub(r" \(in samples[^)]*\)", "", reason.partition(_ADVICE)[0])
    bare = re.sub(r"samples[._]\d+[._]\w+", "", bare).replace("|", "/")
    parts = dict.fromkeys(bare.split(", "))
    return ", ".join(parts)[:_LONGEST_REASON].strip()
