"""Identify the code that turns kernels into machine code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import tvm_xengine


def digest(facts: Mapping[str, str]) -> str:
    """A short key for named facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def code_version() -> str:
    """Return a key that changes whenever the code generator or a pass does.

    Times measured with an older version must not be taken for those of this one, and a number
    to be raised by hand would be forgotten.
    """
    sources = hashlib.sha256()
    for room in ("kernels", "passes"):
        folder = Path(str(tvm_xengine.__file__)).parent / room
        for path in sorted(folder.rglob("*.py")):
            sources.update(path.relative_to(folder).as_posix().encode())
            sources.update(path.read_bytes())
    return sources.hexdigest()[:16]
