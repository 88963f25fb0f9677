"""The page about damaged files and interrupts covers everything, and reports no failure."""

from __future__ import annotations

from pathlib import Path

from tests.commands.faults.long_commands import LONG_COMMANDS, QUICK_COMMANDS
from tests.fuzz.readers import KINDS
from tests.robustness.lost_ranks import DIVISIONS
from tests.robustness.page import page
from tests.robustness.verdicts import FileVerdict, LossVerdict, SignalVerdict, Verdicts
from tvm_xengine.commands.app import app

PAGE = Path(__file__).parents[2] / "docs" / "robustness.md"


def rows(text: str) -> dict[str, list[str]]:
    """Cells of every row of a table by the first one."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {first: others for first, *others in cells}


def test_every_kind_of_file_and_command_is_on_the_page_without_failures() -> None:
    files, commands, lost = map(rows, PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    for kind in KINDS:
        count, *_, failed = files[kind]
        assert int(count) >= 500
        assert failed == "0"
    for command in LONG_COMMANDS:
        moments, _, failed, *_ = commands[command]
        assert int(moments) > 0
        assert failed == "0"
    judged = {name: cells for name, cells in lost.items() if name.partition(", ")[0] in DIVISIONS}
    assert {
        f"{what}, {sent}" for what in ("layers", "batch") for sent in ("SIGKILL", "SIGSTOP")
    } <= {*judged}
    assert {cells[5] for cells in judged.values()} == {"0"}


def test_every_command_can_be_meant() -> None:
    for command in (*LONG_COMMANDS.values(), *QUICK_COMMANDS.values()):
        words = [*command.arguments]
        app.parse_args(words[words[0] == "launch" :], exit_on_error=False, print_error=False)


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


def test_the_page_counts_lost_ranks_and_keeps_what_was_not_judged(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path / "verdicts.jsonl")
    verdicts.add(LossVerdict(0, "batch", 1, "SIGKILL", 2.5, False, 1.0, "both", ()))
    verdicts.add(LossVerdict(1, "batch", 0, "SIGKILL", 2.5, True, None, "left", ()))
    verdicts.add(LossVerdict(2, "batch", 0, "SIGKILL", 2.5, True, None, "left", ("it hangs",)))
    earlier = page(Verdicts(tmp_path / "none"), ["plan"], {}).replace(
        "| plan | 0 |", "| plan | 7 |"
    )
    text = page(Verdicts(tmp_path / "verdicts.jsonl"), ["plan"], {}, earlier, "Of 1a2b3c4d.")
    assert "\n\nOf 1a2b3c4d.\n\n## Damaged files\n" in text
    found = rows(text)
    assert found["plan"][0] == "7"
    assert found["batch, SIGKILL"] == ["3", "1", "1", "1", "1", "1", "1.0", "1.0"]
