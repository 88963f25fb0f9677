"""Judges all node tests in a process of its own, and writes the table of operators."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import onnx

from tests.databases.onnx_nodes import Status, Verdict, all_cases, judge
from tests.databases.walk import LIMIT_S, WAITING_S
from tests.processor_time import processor_s

_ROOT = Path(__file__).parents[2]
_TABLE = _ROOT / "docs" / "operators" / "onnx.md"
_VERDICTS = _ROOT / "build" / "onnx_nodes.jsonl"


def _serve(connection: Connection) -> None:
    cases = {case.name: case for case in all_cases()}
    while (name := connection.recv()) is not None:
        verdict = judge(cases[name])
        connection.send((verdict.status.value, verdict.reason))


class _Worker:
    """A process that judges cases; it may die of one."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def judge(self, name: str) -> tuple[Status, str] | None:
        """How the case ended; None if the process died of it or hangs."""
        pid = self._process.pid or 0
        before_s, deadline = processor_s(pid), time.monotonic() + WAITING_S
        self._ours.send(name)
        try:
            while not self._ours.poll(1.0):
                if processor_s(pid) - before_s > LIMIT_S or time.monotonic() > deadline:
                    return None
            status, reason = self._ours.recv()
        except (EOFError, ConnectionResetError):
            return None
        return Status(status), reason

    def end(self) -> int | None:
        """End the process; returns its exit code if it had ended by itself."""
        self._process.join(1)
        code = self._process.exitcode
        self._process.kill()
        self._process.join()
        return code


def walk(names: Sequence[str]) -> Iterator[Verdict]:
    """Verdicts of the named cases; an abort inside TVM ends only its case."""
    operators = {case.name: case.operator for case in all_cases()}
    worker = _Worker()
    for name in names:
        answer = worker.judge(name)
        if answer is None:
            code = worker.end()
            worker = _Worker()
            answer = Status.CRASHED, "hangs" if code is None else f"ends the process ({code})"
        yield Verdict(name, operators[name], *answer)
    worker.end()


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """Verdicts by name of the case; of a case judged twice, the last one."""
    if not path.exists():
        return {}
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        one["name"]: Verdict(one["name"], one["operator"], Status(one["status"]), one["reason"])
        for one in found
    }


def main() -> None:
    """Judge what has no verdict yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="judge all cases anew")
    parser.add_argument(
        "--only", default="", help="judge anew the cases whose name or operator holds this text"
    )
    parser.add_argument(
        "--again", nargs="*", default=(), metavar="STATUS", help="judge anew what ended so"
    )
    parser.add_argument("--verdicts", type=Path, default=_VERDICTS, help="where they are kept")
    parser.add_argument("--table", type=Path, default=_TABLE, help="the file to write")
    options = parser.parse_args()
    options.verdicts.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.verdicts.unlink(missing_ok=True)
    known = read_verdicts(options.verdicts)
    names = [
        case.name
        for case in all_cases()
        if case.name not in known
        or known[case.name].status.value in options.again
        or (options.only and options.only in f"{case.name} {case.operator}")
    ]
    with options.verdicts.open("a") as file:
        for done, verdict in enumerate(walk(names), 1):
            known[verdict.name] = verdict
            file.write(json.dumps({**vars(verdict), "status": verdict.status.value}) + "\n")
            file.flush()
            line = f"{verdict.status.value:14} {verdict.name}: {verdict.reason}"
            sys.stdout.write(f"{done}/{len(names)} {line}\n")
            sys.stdout.flush()
    options.table.parent.mkdir(parents=True, exist_ok=True)
    options.table.write_text(table([known[case.name] for case in all_cases()]))


def table(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a page: the totals, then a row for each operator."""
    by_operator: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_operator.setdefault(verdict.operator, []).append(verdict)
    judged = [one for one in verdicts if one.status is not Status.NOT_APPLICABLE]
    equal = sum(one.status is Status.EQUAL for one in judged)
    lines = [
        "# ONNX operators",
        "",
        "<!-- Written by `python -m tests.databases.onnx_walk --fresh`; do not edit. -->",
        "",
        f"The node tests of onnx {onnx.__version__}: each operator is imported, lowered as a training",
        "step is, run, and compared with ONNX's expected outputs. *Not applicable* are cases of",
        "strings, sequences, optional values, images in files, and random numbers.",
        "",
        "| " + " | ".join(status.value for status in Status) + " |",
        "|" + "---:|" * len(Status),
        "| " + " | ".join(str(_count(verdicts, status)) for status in Status) + " |",
        "",
        f"Of {len(judged)} judged cases {equal / len(judged):.1%} are equal.",
        "",
        "| operator | equal | of | not equal because |",
        "|---|---:|---:|---|",
        *(_row(name, by_operator[name]) for name in sorted(by_operator)),
    ]
    return "\n".join(lines) + "\n"


def _count(verdicts: Sequence[Verdict], status: Status) -> int:
    return sum(verdict.status is status for verdict in verdicts)


def _row(operator: str, verdicts: Sequence[Verdict]) -> str:
    reasons: dict[str, int] = {}
    for one in verdicts:
        if one.status is not Status.EQUAL:
            reason = f"{one.status.value}: {one.reason}".replace("|", "\\|")
            reasons[reason] = reasons.get(reason, 0) + 1
    told = "<br>".join(f"{reason} ({n})" for reason, n in reasons.items())
    return f"| {operator} | {_count(verdicts, Status.EQUAL)} | {len(verdicts)} | {told} |"


if __name__ == "__main__":
    main()
