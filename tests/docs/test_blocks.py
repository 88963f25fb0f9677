"""Every code block of the pages has a kind, and does what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import KINDS, Block, blocks_of, commands_of, indented_blocks, is_slow
from tests.docs.compare import shows
from tests.docs.run_page import PageRun

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_id(page: Path) -> str:
    """How a test names a page."""
    return page.relative_to(ROOT).as_posix()


def has_work(page: Path) -> bool:
    """Whether a page shows anything that can be run."""
    return any(block.kind != "text" for block in blocks_of(page))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_of_a_page_has_a_kind(page: Path) -> None:
    assert indented_blocks(page) == []
    assert [(block.line, block.kind) for block in blocks_of(page) if block.kind not in KINDS] == []
    assert all(block.marks["not run"] for block in blocks_of(page) if "not run" in block.marks)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if is_slow(page) else (), id=page_id(page))
        for page in PAGES
        if has_work(page)
    ],
)
def test_a_page_does_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    pytest.importorskip("torch", reason="pages use PyTorch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    monkeypatch.chdir(tmp_path)
    faults = PageRun(page, tmp_path).run()
    assert not faults, "\n\n".join(faults)


def test_numbers_and_widths_are_not_compared_but_words_are() -> None:
    printed = " cpu   1.047 MiB  27 \n──────\nstatus  feasible (auto, 7.7 s)\n"
    assert shows(["cpu 2 KiB 3", "──", "status feasible (auto, 90 s)"], printed)
    assert shows(["...", "status feasible ..."], printed)
    assert not shows(["status feasible (auto, 7.7 s)"], printed)
    assert not shows(["...", "status optimal ..."], printed)
    assert not shows(["cpu 1"], "")


def test_a_command_may_span_lines_and_has_the_output_below_it() -> None:
    block = Block("console", "$ one \\\n    two\nsaid\n$ three\n", 1)
    assert [(c.line, c.shown) for c in commands_of(block)] == [
        ("one two", ("said",)),
        ("three", ()),
    ]
    with pytest.raises(ValueError, match="begins with a command"):
        commands_of(Block("console", "one\n", 1))


def test_a_page_that_does_otherwise_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint('a')\n```\n\n```output\nb\n```\n\n"
        "```console\n$ echo c\nd\n$ false\n```\n\n<!-- exit: 1 -->\n\n```console\n$ false\n```\n\n"
        "```python\n1 / 0\n```\n",
        encoding="utf-8",
    )
    faults = PageRun(page, tmp_path).run()
    found = [fault.split(":")[0] for fault in faults]
    assert found == [f"page.md, line {line}" for line in (5, 9, 9, 21)]
    assert "ZeroDivisionError" in faults[-1]
