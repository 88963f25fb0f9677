"""Judge PyTorch's databases and write the table: ``python -m tests.databases.torch_walk --help``."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.databases.verdict import Status, Verdict
from tests.databases.walk import Chunk, Verdicts, chunks, walk

CACHE = Path("build/databases/torch.jsonl")
STEP_CACHE = Path("build/databases/torch_steps.jsonl")
DATABASES = ("op_db", "module_db")


def judge_samples(database: str, operator: str, numbers: Sequence[int]) -> list[tuple[Status, str]]:
    """The verdicts on some samples of an operator or module, run in TVM's virtual machine."""
    from tests.databases import torch_judge

    _be_quiet()
    samples = _samples(database, operator)
    return torch_judge.judge(operator, [samples[k] for k in numbers])


def judge_steps(database: str, operator: str, numbers: Sequence[int]) -> list[tuple[Status, str]]:
    """The verdicts on some samples of an operator or module, run as steps with our kernels."""
    from tests.databases import torch_judge
    from tests.databases.step import evaluate_in_step

    _be_quiet()
    samples = _samples(database, operator)
    return torch_judge.judge(operator, [samples[k] for k in numbers], evaluate_in_step)


def _samples(database: str, operator: str) -> list[object]:
    from tests.databases import torch_samples

    make = {
        "op_db": torch_samples.operator_samples,
        "module_db": torch_samples.module_samples,
    }[database]
    return list(make(operator))


def spread(count: int, at_most: int | None) -> list[int]:
    """`at_most` positions among `count` (None: all), evenly apart, the first and the last included."""
    if at_most is None or count <= at_most:
        return list(range(count))
    if at_most == 1:
        return [0]
    return sorted({round(k * (count - 1) / (at_most - 1)) for k in range(at_most)})


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _be_quiet() -> None:
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")


def _work(
    verdicts: Verdicts,
    databases: Sequence[str],
    only: str,
    again: Sequence[str],
    at_most: int | None,
) -> Iterator[Chunk]:
    from tests.databases import torch_samples

    for database in databases:
        names = torch_samples.operators() if database == "op_db" else torch_samples.modules()
        for name in names:
            if not re.search(only, name):
                continue
            wanted = []
            for k in spread(len(_samples(database, name)), at_most):
                known = verdicts.of(database, name, k)
                if known is None or known.status.value in again or "all" in again:
                    wanted.append(k)
            yield from chunks(database, name, wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", action="append", choices=DATABASES)
    parser.add_argument("--only", default="", help="regular expression of operators")
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        help="judge samples again that ended like this (all: every one)",
    )
    parser.add_argument("--samples", type=int, help="judge at most N samples of an operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--steps", action="store_true", help="run steps with our kernels, not TVM's virtual machine"
    )
    parser.add_argument("--cache", type=Path, help=f"verdicts ({CACHE}, of steps {STEP_CACHE})")
    parser.add_argument("--table", type=Path, help="write the table here")
    options = parser.parse_args()
    verdicts = Verdicts(options.cache or (STEP_CACHE if options.steps else CACHE))
    counts: Counter[str] = Counter()

    def on_verdicts(made: list[Verdict]) -> None:
        verdicts.add(made)
        counts.update(one.status.value for one in made)
        for one in made:
            if one.status in (Status.DIFFERENT, Status.CRASHED):
                _say(f"{one.operator} {one.sample}: {one.status.value}: {one.reason}")
        sys.stderr.write(" ".join(f"{key} {n}" for key, n in sorted(counts.items())) + "\n")

    _be_quiet()
    work = _work(
        verdicts, options.database or DATABASES, options.only, options.again, options.samples
    )
    judge = judge_steps if options.steps else judge_samples
    walk(work, judge, jobs=options.jobs, on_verdicts=on_verdicts)
    if options.table is not None:
        from tests.databases.table import write_table

        write_table(verdicts, options.table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
