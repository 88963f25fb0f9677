"""A package of somebody else, installed for the duration of a test."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"


@contextmanager
def installed(
    code: str, entry_points: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Install the module ``toy`` with entry points: their groups and the lines of each."""
    (folder / "toy.py").write_text(textwrap.dedent(code))
    metadata = folder / "toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA)
    groups = (f"[tvm_xengine.{group}]\n{lines}\n" for group, lines in entry_points.items())
    (metadata / "entry_points.txt").write_text("".join(groups))
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        try:
            yield
        finally:
            sys.modules.pop("toy", None)
