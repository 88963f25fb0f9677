"""Whether the system gives this process the memory that a command begins with.

Libraries that are imported with less end the process in ways of their own, or wait for ever for a
thread that cannot be started (OpenBLAS). A limit of the process (``ulimit -v``) shows beforehand.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Sequence

from tvm_xengine.commands.arguments.usage import UsageError

NO_MEMORY = (
    "the system gives this process no more memory; the model or batch is too large for this"
    " machine, or a limit (ulimit -v, a control group) is too low"
)

_NO_RESERVE = 0x4000
"""``MAP_NORESERVE`` of Linux, which Python names since 3.13: memory that is not used need not be there."""

_LITTLE_BYTES = 64 << 20
"""Who cannot have so much has reached a limit, and whatever failed failed for that."""

_THREAD_BYTES = 80 << 20
"""Address space that each thread of the two copies of OpenBLAS takes, that of numpy and that of SciPy."""

_MOST_THREADS = 64
"""OpenBLAS starts no more (``NUM_THREADS`` as numpy and SciPy build it)."""

_COMPILER_BYTES = 970 << 20
"""Of commands that compile kernels on two cores the smallest, `pareto`, takes 1130 MiB beside what the
interpreter has, with those threads."""

_OTHERS_BYTES = {
    "compare": 100 << 20,
    "completion": 0,
    "doctor": 800 << 20,
    "estimate": 800 << 20,
    "explain": 800 << 20,
    "launch": 128 << 20,
    "simulate": 100 << 20,
    "solve": 600 << 20,
}
"""The same of commands that compile none."""

_WITHOUT_BLAS = frozenset(["completion", "launch"])


def check_room(commands: Sequence[str]) -> None:
    """Refuse a command that needs more address space to begin than it can get.

    Raises
    ------
    UsageError
        With how much that is.
    """
    name = commands[0] if commands else "completion"
    threads = 0 if name in _WITHOUT_BLAS else min(os.cpu_count() or 1, _MOST_THREADS)
    needed = _OTHERS_BYTES.get(name, _COMPILER_BYTES) + threads * _THREAD_BYTES
    if needed and not has_room(needed):
        raise UsageError(
            f"{name} needs {needed >> 20} MiB of address space to begin, and the system gives this"
            " process less: raise its limit (ulimit -v, ulimit -d)"
        )


def has_little_room() -> bool:
    """Whether a limit is reached, so that what fails may have failed for it."""
    return not has_room(_LITTLE_BYTES)


def has_room(size_bytes: int) -> bool:
    """Whether so much address space can be had; nothing is written to it."""
    if sys.platform != "linux":
        return True
    try:
        mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | _NO_RESERVE).close()
    except (OSError, MemoryError):
        return False
    return True
