"""Hold back what interrupts this thread for as long as a piece of work takes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Interrupts of the main thread arrive at the end of the block, before the next statement.

    These are SIGINT, and SIGUSR1, by which the command line wakes the main thread. Other threads
    are never interrupted by Python, so nothing is held there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = {signal.SIGINT, signal.SIGUSR1}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
