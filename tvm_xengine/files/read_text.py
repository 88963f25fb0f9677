"""Reading files that a user names: bytes, text and JSON written by people or other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tvm_xengine.checks.regular_file import require_regular_file

T = TypeVar("T")

MOST_BYTES = 1 << 30
"""A larger text is no file of ours: problems of the largest networks take tens of megabytes."""


def read_bytes(path: Path, most_bytes: int | None = None) -> bytes:
    """The content of a regular file; see `require_regular_file`."""
    require_regular_file(path, most_bytes)
    return path.read_bytes()


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte-order mark.

    Raises
    ------
    OSError
        If the file cannot be read, or is larger than `MOST_BYTES`.
    ValueError
        If it is no text in UTF-8.
    """
    try:
        return read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text in UTF-8, found byte {error.start} to be none") from error


def read_document(path: Path, what: str, refusal: type[Exception], parse: Callable[[str], T]) -> T:
    """What `parse` makes of the text of a file.

    Parameters
    ----------
    what
        Kind of the file, for messages.
    refusal
        Raised with the path where the file cannot be read, or `parse` refuses it.
    """
    try:
        return parse(read_text(path))
    except refusal as error:  # of `parse`, which has said what is wrong, but not where
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise refusal(f"cannot read {what} file {path}: {error.strerror}") from error
    except ValueError as error:
        raise refusal(f"{path} is no {what} file: {error}") from error


def parse_json(text: str) -> object:
    """The value of a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON, nested deeper than Python can read, has numbers beyond its limits, or an
        object names a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        # The stack is full here: the message must be made elsewhere.
        pass
    raise ValueError("expected JSON, found it nested too deeply")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"expected each key once, found {twice!r} twice")
    return found
