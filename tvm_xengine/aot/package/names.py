"""The prefix of a package's files and C names."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.errors import UnsupportedModelError


def package_name(model_name: str) -> str:
    """`model_name` as a prefix of files and C names.

    Raises
    ------
    UnsupportedModelError
        If it has no letter.
    """
    stem = Path(model_name).stem
    text = "".join(c.lower() if c.isascii() and c.isalnum() else "_" for c in stem)
    text = text if text and not text[0].isdigit() else f"net_{text}"
    if not text.strip("_"):
        raise UnsupportedModelError(
            f"the model name {model_name!r} has no letter; rename the model"
        )
    return text
