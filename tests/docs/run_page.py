"""Runs a page: its files are written, its Python and its commands run, in the page's order."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.docs import given
from tests.docs.blocks import Block, Command, blocks_of, commands_of
from tests.docs.compare import shows

ROOT = Path(__file__).parents[2]
_LONGEST_S = 1200
"""What a command may take; the longest of the pages takes about a minute on a quiet machine."""


@dataclass
class PageRun:
    """A page that is run in a folder; `faults` says where it does not do as it shows."""

    page: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    printed: str = ""
    faults: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Run every block; what went wrong."""
        for block in blocks_of(self.page):
            for name in block.marks.get("given", "").split():
                given.make(name, self.folder)
            if "not run" in block.marks:
                continue
            if "file" in block.marks:
                path = self.folder / block.marks["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.kind == "python":
                self._python(block)
            elif block.kind == "console":
                for command in commands_of(block):
                    self._command(command, block)
            elif block.kind == "output":
                if not shows(block.text.splitlines(), self.printed):
                    self._fault(block, f"Python printed:\n{self.printed}")
            elif block.kind == "toml":
                self._platform(block)
            elif block.kind == "pyi":
                ast.parse(block.text)
        return self.faults

    def _python(self, block: Block) -> None:
        out = io.StringIO()
        # Line numbers of a traceback are those of the page.
        text = "\n" * block.line + block.text
        code = compile(text, str(self.page), "exec", dont_inherit=True)
        try:
            with redirect_stdout(out):
                exec(code, self.names)
        except Exception:  # whatever the page's Python raises; what went wrong before may be why
            self._fault(block, f"Python raised:\n{traceback.format_exc()}")
        self.printed = out.getvalue()

    def _command(self, command: Command, block: Block) -> None:
        ended = subprocess.run(
            ["bash", "-c", command.line],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        wanted = int(block.marks.get("exit", 0))
        said = f"$ {command.line}\n{ended.stdout}{ended.stderr}"
        if ended.returncode != wanted:
            self._fault(block, f"exit code {ended.returncode}, not {wanted}:\n{said}")
        elif command.shown and not any(
            shows(command.shown, text)
            for text in (ended.stdout, ended.stderr, ended.stderr + ended.stdout)
        ):
            self._fault(block, f"other output than the page shows:\n{said}")

    def _platform(self, block: Block) -> None:
        from tvm_xengine.scheduling.platform_file import read_platform

        path = self.folder / "platform_of_the_page.toml"
        path.write_text(block.text, encoding="utf-8")
        read_platform(path)

    def _fault(self, block: Block, what: str) -> None:
        self.faults.append(f"{self.page.name}, line {block.line}: {what}")


def _environment() -> dict[str, str]:
    """That of a user: the command on the path, a terminal of 80 columns."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
