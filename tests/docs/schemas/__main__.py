"""Writes every schema into docs/reference/schemas: ``python -m tests.docs.schemas``."""

from __future__ import annotations

from tests.docs.schemas.files import FOLDER, texts

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
