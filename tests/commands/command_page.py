"""Writes the options in docs/command_line.md from the help of the commands.

Run ``python -m tests.commands.command_page`` after a change of options.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from tests.commands.in_process import run_command
from tvm_xengine.commands.app import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "command_line.md"
_MARK = "written by `python -m tests.commands.command_page`. -->\n"
"""Above it the page is written by hand."""


def page() -> str:
    """The page as it should be."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(_MARK)
    parts = [head + mark]
    for command in commands():
        with patch.dict(os.environ, COLUMNS="80"):
            shown = run_command(*command.split(), "--help").stdout
        body = shown.partition("\nExit codes:")[0].strip()
        parts.append(f"## {command}\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


def commands() -> list[str]:
    """Every command with its own help, those of ``costs`` last."""
    own = [name for name in app if not name.startswith("-")]
    costs = [f"costs {name}" for name in app["costs"] if not name.startswith("-")]
    return [*(name for name in own if name != "costs"), *costs]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
