"""The message of a compiler or linker, as one sentence."""

from __future__ import annotations

import re


def reason(errors: str) -> str:
    """The first thing that keeps a program from being built."""
    overflow = re.search(r"region [`'](\w+)'? overflowed by (\d+) bytes", errors)
    if overflow is not None:
        region, size_bytes = overflow.groups()
        return (
            f"it needs {size_bytes} bytes more {region} than the emulated board has; export it with a"
            " smaller arena or a smaller model, or check it on another target"
        )
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if "error" in line] or lines or ["it gave no reason"]
    return said[0]
