"""The verdicts as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import quantiles

from tests.robustness.verdicts import FileVerdict, SignalVerdict, Verdicts


def page(verdicts: Verdicts, kinds: Iterable[str], commands: Mapping[str, Sequence[str]]) -> str:
    """Both tables: `kinds` of files, and `commands` by name with their arguments."""
    files, signals = list(verdicts.files.values()), list(verdicts.signals.values())
    lines = [
        "# Damaged files and interrupts",
        "",
        "<!-- Written by `make table-robustness`; do not edit. -->",
        "",
        "## Damaged files",
        "",
        "A valid file of each kind is damaged at random (bits, cuts, splices, encodings, values, missing"
        " and doubled keys, zip members) and read in a process with 6 GiB of memory. *Accepted* files"
        " are used as well: problems are solved, plans and states run; of files of rows, lines that"
        " cannot be read are skipped and named. *Failed* is a traceback, a crash, no answer within"
        " 60 s, or an empty message.",
        "",
        "| file | damaged | refused with a sentence | accepted | failed |",
        "|---|---:|---:|---:|---:|",
        *(_file_row(kind, [one for one in files if one.kind == kind]) for kind in kinds),
        "",
        "## Interrupts",
        "",
        "SIGINT or SIGTERM at a random moment of each command, on two cores that other work kept busy:"
        " after up to 6 s of processor time, imports included, or (24 of 25) after up to 3 s of a"
        " command that begins with everything imported and has the smallest"
        " network. *Failed*: another exit code than 130 or 143, a process or temporary file that is"
        " left, a half-written file, a measurement that is lost, or a traceback. Seconds count from the"
        " signal to the end of the command.",
        "",
        "| command | moments | ended before | failed | median s | 90 % s | longest s |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(_signal_row(name, [one for one in signals if one.command == name]) for name in commands),
        "",
        "```text",
        *(f"{name}: tvm-xengine {' '.join(arguments)}" for name, arguments in commands.items()),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _file_row(kind: str, rows: Sequence[FileVerdict]) -> str:
    refused, accepted = (
        sum(one.answer == answer for one in rows) for answer in ("refused", "read")
    )
    failed = len(rows) - refused - accepted
    return f"| {kind} | {len(rows)} | {refused} | {accepted} | {failed} |"


def _signal_row(name: str, rows: Sequence[SignalVerdict]) -> str:
    hit = [one for one in rows if one.code is not None]
    failed = sum(bool(one.faults) for one in hit)
    times = [f"{value:.1f}" for value in _spread([one.seconds for one in hit])]
    return f"| {name} | {len(rows)} | {len(rows) - len(hit)} | {failed} | {' | '.join(times)} |"


def _spread(seconds: Sequence[float]) -> tuple[float, ...]:
    """Median, 90th percentile and largest value."""
    if not seconds:
        return (0.0, 0.0, 0.0)
    # One value has no quantiles.
    tenths = quantiles(seconds if len(seconds) > 1 else [*seconds] * 2, n=10, method="inclusive")
    return tenths[4], tenths[8], max(seconds)
