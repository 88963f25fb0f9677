"""Writes the options in docs/command_line.md from the help of the commands.

An option that several commands take in the same words stands once, in a table of its group.
Run ``python -m tests.commands.shown.command_page`` after a change of options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions, RenderableType

from tvm_xengine.commands.app import app

PAGE = Path(__file__).parents[3] / "docs" / "command_line.md"
_MARK = "written by `python -m tests.commands.shown.command_page`. -->\n"
"""Above it the page is written by hand."""


@dataclass(frozen=True)
class Option:
    """A row of a table; `group` is the panel of the help in which it stands."""

    group: str
    labels: str
    meaning: str

    @property
    def name(self) -> str:
        """Its first name, without the value it takes."""
        return self.labels.split()[0].rstrip(",")

    @property
    def row(self) -> str:
        """The row in Markdown."""
        return (
            "| " + " | ".join(_escaped(text) for text in (f"`{self.labels}`", self.meaning)) + " |"
        )


@dataclass
class Help:
    """The help of a command, collected by a formatter of Cyclopts."""

    usage: str = ""
    summary: str = ""
    options: list[Option] = field(default_factory=list)

    def render_usage(self, _console: Console, _options: ConsoleOptions, usage: object) -> None:
        """Take the usage."""
        self.usage = _text(usage).removeprefix("Usage:").strip()

    def render_description(self, _console: Console, _options: ConsoleOptions, said: object) -> None:
        """Take the summary."""
        self.summary = _text(said)

    def __call__(self, _console: Console, _options: ConsoleOptions, panel: HelpPanel) -> None:
        """Take a group of options."""
        group = _text(panel.title)
        if group != "Commands":
            self.options += [_option(group, entry) for entry in panel.entries]


def page() -> str:
    """The page as it should be."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(_MARK)
    helps = {command: help_of(command) for command in commands()}
    uses = Counter(option for one in helps.values() for option in one.options)
    shared: dict[str, list[Option]] = {}
    for option in uses:
        if uses[option] > 1:
            shared.setdefault(option.group, []).append(option)
    lines = [head + mark, "## Options of several commands"]
    for group in sorted(shared, key=_GROUPS.index):
        lines += ["", f"### {group}", "", *_table(shared[group])]
    for command, found in helps.items():
        lines += ["", f"## {command}", "", "```text", found.usage, "```", "", found.summary]
        lines += _shared_line(found, shared)
        own = [option for option in found.options if uses[option] == 1]
        if own:
            lines += ["", *_table(own)]
    return "\n".join((*lines, ""))


_GROUPS = ("Arguments", "Parameters", "Model", "Training", "Machine", "Target", "Plan", "Output")
"""The order of groups on the page."""


def commands() -> list[str]:
    """Every command with its own help, those of ``costs`` last."""
    own = [name for name in app if not name.startswith("-")]
    costs = [f"costs {name}" for name in app["costs"] if not name.startswith("-")]
    return [*(name for name in own if name != "costs"), *costs]


def help_of(command: str) -> Help:
    """What ``--help`` shows for a command."""
    found = Help()
    with redirect_stdout(StringIO()), patch.object(app, "help_formatter", found):
        app.help_print(command.split())
    return found


def _option(group: str, entry: HelpEntry) -> Option:
    said = [_text(entry.description)]
    if entry.choices:
        said.append(f"One of {', '.join(entry.choices)}.")
    if entry.default is not None:
        said.append(f"Default: {entry.default}.")
    if entry.required:
        said.append("Required.")
    return Option(group, ", ".join(entry.display_labels_with_metavar), " ".join(filter(None, said)))


def _shared_line(found: Help, shared: dict[str, list[Option]]) -> Iterator[str]:
    """The groups that a command takes all of, and the names of its options from the others."""
    parts = []
    for group, options in shared.items():
        mine = [option for option in options if option in found.options]
        if len(mine) == len(options) > 1:
            parts.append(f"all of {group}")
        elif mine:
            parts.append(", ".join(f"`{option.name}`" for option in mine))
    if parts:
        yield from ("", f"Shared options: {'; '.join(parts)}.")


def _table(options: Sequence[Option]) -> list[str]:
    return ["| option | meaning |", "|---|---|", *(option.row for option in options)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _text(shown: object) -> str:
    """What a person reads, on one line."""
    out = StringIO()
    console = Console(file=out, width=10_000, color_system=None)
    renderable: RenderableType = shown  # type: ignore[assignment]
    console.print(renderable)
    return " ".join(out.getvalue().split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
