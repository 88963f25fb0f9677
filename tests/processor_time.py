"""Processor time of other processes, which a busy machine does not stretch as it does the clock."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = slice(11, 15)
"""Fields of /proc/PID/stat behind the name: of the process, and of its children that have ended."""


def processor_s(pid: int) -> float:
    """Seconds that a process and its children have computed, also those that have ended."""
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        children = " ".join(each.read_text() for each in folder.glob("task/*/children")).split()
    except OSError:  # it has ended
        return 0.0
    own_s = sum(map(int, fields[_TICKS])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(processor_s(int(child)) for child in children)
