"""Tables of results say which run took a figure, and which figures no run has taken."""

from pathlib import Path

import pytest

from benchmarks import record, tables


def test_new_rows_take_the_place_of_all_that_a_table_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    table = tables.Table("t", "Title", "Text.", "command", ("who",))
    monkeypatch.setattr(tables, "TABLES", (table,))
    for who in ("before", "now"):
        tables.rewrite("t", [{"who": who}])
    assert [row["who"] for row in record.rows_of("t")] == ["now"]
    assert "| now |" in (tmp_path / "t.md").read_text(encoding="utf-8")


def test_known_figures_carry_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    record.record("t", {"who": "us", "bytes": 1, "source": "QEMU"})
    record.record_known("t", {"who": "them", "bytes": 2, "source": "their paper"})
    tables.write(tables.Table("t", "Title", "Text.", "command", ("who",)))
    ours, theirs = (tmp_path / "t.md").read_text(encoding="utf-8").split("Not run for this table")
    assert "commit " in ours
    assert "| us | 1 | QEMU |" in ours
    assert "commit " not in theirs
    assert "| them | 2 | their paper |" in theirs
