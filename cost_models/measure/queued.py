"""How long the threads of this process have waited for a core."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


def queued_us() -> float:
    """Time that all threads together were ready to run and had no core; 0 where the system does not say.

    The second number of Linux's ``schedstat``, in nanoseconds. A thread's wait counts once it runs again.
    """
    waited_ns = 0
    with suppress(OSError, ValueError, IndexError):
        for task in _TASKS.iterdir():
            waited_ns += int((task / "schedstat").read_bytes().split()[1])
    return waited_ns / 1000
