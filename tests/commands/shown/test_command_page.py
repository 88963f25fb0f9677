"""The page of the command line says what the help says."""

import json
from pathlib import Path

from tests.commands.in_process import run_command
from tests.commands.shown.command_page import PAGE, page


def test_the_page_is_in_step_with_the_help() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python -m tests.commands.shown.command_page"
    )


def test_a_plan_has_the_keys_that_the_page_names(tmp_path: Path) -> None:
    given = ("--solver", "greedy", "--costs", "roofline", "--cache", str(tmp_path / "m.jsonl"))
    found = json.loads(run_command("plan", "mlp", *given, "--json", "-").stdout)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith("| `plan`, `solve`")]
    assert set(found) == {name.strip("` ") for name in row.split("|")[2].split(",")}
