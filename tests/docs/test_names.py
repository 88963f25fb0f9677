"""The pages name only what there is: files, options of the commands, targets of make."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests.commands.shown.command_page import Option, commands, help_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in chain(ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md"))
    if page.name != "CHANGELOG.md" and page.parent.name != "operators"
)
WRITTEN = {"results/solvers.md", "results/embedded.md", "docs/results/solvers.md"}
"""Tables that `make tables` writes from figures; they may be absent."""


def page_id(page: Path) -> str:
    """How a test names a page."""
    return page.relative_to(ROOT).as_posix()


def quoted(page: Path) -> set[str]:
    """What stands between backticks."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))


def exists(name: str, page: Path) -> bool:
    """Whether a path, as a page may write it, leads to a file or folder."""
    places = (ROOT, ROOT / "tvm_xengine", ROOT / "tvm_xengine" / "solvers", page.parent)
    rooms = (path for path in (ROOT / "tvm_xengine").glob("*/") if path.is_dir())
    return any((place / name).exists() for place in (*places, *rooms)) or any(
        ROOT.glob(f"tvm_xengine/*/**/{name}")
    )


@cache
def options() -> tuple[Option, ...]:
    """Those of every command."""
    return tuple(option for command in commands() for option in help_of(command).options)


@cache
def words_of_the_sources() -> frozenset[str]:
    """Every word that the sources hold."""
    rooms = ("tvm_xengine", "passes", "cost_models", "benchmarks")
    sources = chain.from_iterable(ROOT.glob(f"{room}/**/*.py") for room in rooms)
    return frozenset(
        chain.from_iterable(
            re.findall(r"\w+", path.read_text(encoding="utf-8")) for path in sources
        )
    )


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = {name for name in quoted(page) if re.fullmatch(r"[\w/]+(\.py|\.md|/)", name)}
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    missing = {name for name in named - WRITTEN if not exists(name, page)}
    missing |= {link for link in links if not (page.parent / link).exists()}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_option_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = set(re.findall(r"--[\w-]+", " ".join(option.labels for option in options())))
    known |= {"--help", "--version", "--debug"}
    lines = [line for line in text.splitlines() if "tvm-xengine" in line or "`--" in line]
    lines = [line for line in lines if "pip " not in line and "python -m" not in line]
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", " ".join(lines))) <= known


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_target_of_make_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)", page.read_text(encoding="utf-8"))) <= targets


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_name_in_capitals_that_a_page_quotes_exists(page: Path) -> None:
    """Constants and classes of the sources, such as `SOLVERS` or `KernelSource`."""
    names = {n for n in quoted(page) if re.fullmatch(r"[A-Z][A-Z_]{3,}|(?:[A-Z][a-z]+){2,}", n)}
    assert names <= words_of_the_sources() | {option.name for option in options()}


def test_every_test_of_the_page_about_faults_exists() -> None:
    text = (ROOT / "docs" / "defects.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file()
        or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert len(named) > 50
    assert missing == []


def test_every_row_of_the_page_about_faults_names_a_test() -> None:
    text = (ROOT / "docs" / "defects.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "**" not in line][1:]
    assert [row for row in rows if "::" not in row] == []
