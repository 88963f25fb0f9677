"""The page about damaged files and interrupts covers everything, and reports no failure."""

from __future__ import annotations

from pathlib import Path

from tests.commands.faults.long_commands import LONG_COMMANDS
from tests.fuzz.readers import KINDS
from tests.robustness.page import page
from tests.robustness.verdicts import FileVerdict, SignalVerdict, Verdicts

PAGE = Path(__file__).parents[2] / "docs" / "robustness.md"


def rows(text: str) -> dict[str, list[str]]:
    """Cells of every row of a table by the first one."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {first: others for first, *others in cells}


def test_every_kind_of_file_and_command_is_on_the_page_without_failures() -> None:
    files, commands = map(rows, PAGE.read_text(encoding="utf-8").split("## Interrupts"))
    for kind in KINDS:
        count, *_, failed = files[kind]
        assert int(count) >= 500
        assert failed == "0"
    for command in LONG_COMMANDS:
        moments, _, failed, *_ = commands[command]
        assert int(moments) > 0
        assert failed == "0"


def test_the_page_counts_what_became_of_each(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path / "verdicts.jsonl")
    for seed, answer in enumerate(("read", "refused", "refused", "Traceback")):
        verdicts.add(FileVerdict("plan", seed, answer))
    verdicts.add(FileVerdict("plan", 3, "read"))  # judged again
    verdicts.add(SignalVerdict("train", 0, 1.0, "SIGINT", 130, 0.5, ()))
    verdicts.add(SignalVerdict("train", 1, 9.0, "SIGTERM", 143, 1.5, ("left a process",)))
    verdicts.add(SignalVerdict("train", 2, 9.0, "SIGTERM", None, 0.0, ()))
    for known in (verdicts, Verdicts(tmp_path / "verdicts.jsonl")):
        found = rows(page(known, ["plan"], {"train": ["train", "lenet"]}))
        assert found["plan"] == ["4", "2", "2", "0"]
        assert found["train"] == ["3", "1", "1", "1.0", "1.4", "1.5"]
