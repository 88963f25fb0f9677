"""The verdicts as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import quantiles

from tests.robustness.verdicts import FileVerdict, LossVerdict, SignalVerdict, Verdicts

_SECTION = "\n## "


def page(
    verdicts: Verdicts,
    kinds: Iterable[str],
    commands: Mapping[str, Sequence[str]],
    earlier: str = "",
    walked: str = "",
) -> str:
    """All tables: `kinds` of files, `commands` by name with their arguments, and lost ranks.

    Parameters
    ----------
    earlier
        The page as it is; of its sections those stay on which there is no verdict.
    walked
        Which commits were judged, where that is not one.
    """
    known = [*verdicts.files.values(), *verdicts.signals.values(), *verdicts.losses.values()]
    written = _written(known, kinds, commands)
    kept = {_title(text): text for text in earlier.split(_SECTION)[1:]}
    judged = (verdicts.files, verdicts.signals, verdicts.losses)
    head, *sections = written.split(_SECTION)
    head += f"\n{walked}\n" if walked else ""
    chosen = [
        text if any_known else kept.get(_title(text), text)
        for text, any_known in zip(sections, judged, strict=True)
    ]
    return _SECTION.join([head, *(text.rstrip("\n") + "\n" for text in chosen)])


def _title(section: str) -> str:
    return section.partition("\n")[0]


def _written(
    known: Sequence[FileVerdict | SignalVerdict | LossVerdict],
    kinds: Iterable[str],
    commands: Mapping[str, Sequence[str]],
) -> str:
    files = [one for one in known if isinstance(one, FileVerdict)]
    signals = [one for one in known if isinstance(one, SignalVerdict)]
    losses = [one for one in known if isinstance(one, LossVerdict)]
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
        "",
        "## Lost ranks",
        "",
        "A run over two ranks of one host, of which a random one is killed (SIGKILL), told to end"
        " (SIGTERM) or stopped for good (SIGSTOP) at a random moment: half of the moments before the"
        " first checkpoint, half after it. *Failed*: the other rank hangs, the message does not name the"
        " lost one, a process, a temporary file or shared memory is left, the run does not go on (from"
        " its checkpoint, on both ranks or on the one that is left), or its losses are not those of the"
        " undisturbed run: bit for bit, or within rounding where the shares of the batch are others."
        " Seconds count from the signal until the other rank has ended, with `--rank-timeout 20`; who"
        " has not joined yet is waited for up to 60 s.",
        "",
        "| divided, signal | moments | ended before | with a checkpoint | resumed on both | on one |"
        " failed | median s | longest s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(
            _lost_row([one for one in losses if (one.division, one.signal) == row])
            for row in sorted({(one.division, one.signal) for one in losses})
        ),
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


def _lost_row(rows: Sequence[LossVerdict]) -> str:
    # One that hangs has no time either.
    hit = [one for one in rows if one.seconds is not None or one.faults]
    median, _, longest = _spread([one.seconds for one in hit if one.seconds is not None])
    cells = (
        *(f"{rows[0].division}, {rows[0].signal}", len(rows), len(rows) - len(hit)),
        sum(one.had_checkpoint for one in hit),
        *(sum(one.resumed_on == where for one in hit) for where in ("both", "left")),
        *(sum(bool(one.faults) for one in hit), f"{median:.1f}", f"{longest:.1f}"),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _spread(seconds: Sequence[float]) -> tuple[float, ...]:
    """Median, 90th percentile and largest value."""
    if not seconds:
        return (0.0, 0.0, 0.0)
    # One value has no quantiles.
    tenths = quantiles(seconds if len(seconds) > 1 else [*seconds] * 2, n=10, method="inclusive")
    return tenths[4], tenths[8], max(seconds)
