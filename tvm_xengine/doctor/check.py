"""What a check of the installation answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tvm_xengine.processes.tools import run_tool

_CHILD_S = 120.0
"""Importing the largest library takes half a minute on a cold disk; longer means that it hangs."""


class State(Enum):
    """How well something works here."""

    WORKS = "works"
    LIMITED = "limited"  # works, within limits that the detail names
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    area
        What it belongs to, such as ``solvers``.
    detail
        Version, place, or what is wrong.
    is_required
        Whether nothing works without it.
    remedy
        The command that gets what is missing; empty where there is nothing to do.
    """

    area: str
    name: str
    state: State
    detail: str
    is_required: bool = False
    remedy: str = ""

    @property
    def is_alarming(self) -> bool:
        """Whether something required does not work."""
        return self.is_required and self.state in (State.MISSING, State.BROKEN)


def in_child(code: str, arguments: Sequence[str] = ()) -> tuple[bool, str]:
    """Whether Python code ran to its end in a process of its own, and the last line it wrote.

    A library that crashes while it is loaded ends that process only.
    """
    command = [sys.executable, "-c", code, *arguments]
    try:
        done = run_tool(command, wall_s=_CHILD_S)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_CHILD_S:.0f} s"
    except OSError as error:
        return False, str(error)
    if done.returncode < 0:
        return False, f"ended by signal {-done.returncode}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else ""
