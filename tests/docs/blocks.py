"""The code blocks of a page, each with its kind and the marks that stand before it.

==========  =======================================================================
kind        what the tests do with it
==========  =======================================================================
python      run it; the blocks of a page share their names
console     run every line that starts with ``$``; the other lines are its output
output      compare it with what the block of Python before it printed
toml        read it as a platform
json, c     nothing, unless they are written to a file
pyi         parse it
text        nothing: a figure, a formula, a grammar
==========  =======================================================================

A mark is a comment of HTML, which no reader sees:

- ``<!-- file: NAME -->``: the next block is a file, written before what follows runs;
- ``<!-- given: NAME ... -->``: files of the reader's own, which `tests.docs.given` makes;
- ``<!-- exit: N -->``: the commands of the next block end with this code;
- ``<!-- not run: REASON -->``: the next block is not run;
- ``<!-- slow -->``: the page takes long, and is run by ``make test-slow``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

KINDS = ("python", "console", "output", "toml", "json", "c", "pyi", "text")
MARKS = ("file", "given", "exit", "not run", "slow")


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, its text, its first line, and the marks before it."""

    kind: str
    text: str
    line: int
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A line of a console block, with the output that the page shows."""

    line: str
    shown: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in its order; directives of the site are left out."""
    return list(_blocks(page.read_text(encoding="utf-8")))


def is_slow(page: Path) -> bool:
    """Whether the page bears the mark ``slow``."""
    return "<!-- slow -->" in page.read_text(encoding="utf-8")


def indented_blocks(page: Path) -> list[int]:
    """First lines of the blocks that are indented and therefore have no kind."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    return [token.map[0] + 1 for token in tokens if token.type == "code_block" and token.map]


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends with a backslash goes on."""
    text = re.sub(r"\\\n\s*", "", block.text)
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), ()))
        elif commands:
            commands[-1] = Command(commands[-1].line, (*commands[-1].shown, line))
        else:
            raise ValueError(f"line {block.line}: a console block begins with a command ($ ...)")
    return commands


def _blocks(text: str) -> Iterator[Block]:
    marks: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block":
            found = re.findall(r"<!-- ([a-z ]+?)(?:: (.*?))? -->", token.content)
            marks |= {name: value for name, value in found if name in MARKS}
        elif token.type == "fence" and token.map and not token.info.startswith("{"):
            yield Block(token.info.strip(), token.content, token.map[0] + 1, marks)
            marks = {}
