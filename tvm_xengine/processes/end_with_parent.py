"""A child process that ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process once `parent`, which started it, ends in whatever way.

    Where the system is not Linux it does nothing; there children end when their pipes close.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before the kernel was told
        os._exit(1)
