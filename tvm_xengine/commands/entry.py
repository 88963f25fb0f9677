"""Where the process begins: signals are held back before anything else is imported."""

from __future__ import annotations

import signal
from collections.abc import Sequence

TAKEN = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a command in order; see `tvm_xengine.commands.interrupts`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 when it succeeded, 1 when `estimate --fits` answers no, 2 when its input was refused, 70 after a
    fault of this program, 130 and 143 when SIGINT and SIGTERM ended it. Signals are taken only for
    the arguments of the process (None); one that arrives earlier waits until they are.
    """
    if arguments is None:
        signal.pthread_sigmask(signal.SIG_BLOCK, taken_signals())
    from tvm_xengine.commands.process import run, run_process

    return run_process() if arguments is None else run(arguments)


def taken_signals() -> set[signal.Signals]:
    """The signals to take; one that the process was started to ignore (``nohup``) stays ignored."""
    return {each for each in TAKEN if signal.getsignal(each) is not signal.SIG_IGN}
