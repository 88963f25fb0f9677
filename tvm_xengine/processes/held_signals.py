"""Hold back what interrupts this thread for as long as a piece of work takes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HELD = (signal.SIGINT, signal.SIGUSR1)
"""The second is that by which the command line wakes the main thread."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Interrupts of the main thread arrive at the end of the block, before the next statement.

    Other threads are never interrupted by Python, so nothing is held there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    # Blocked here, a signal is taken by any other thread, and Python runs its handler in this one.
    handlers = {held: handler for held in _HELD if (handler := signal.getsignal(held)) is not None}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    for held in handlers:
        signal.signal(held, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in dict.fromkeys(received):
            signal.raise_signal(number)
