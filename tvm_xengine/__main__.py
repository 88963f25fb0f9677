"""The command line: ``tvm-xengine`` and ``python -m tvm_xengine``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# What takes long to import is imported once interrupts are taken.
from tvm_xengine.commands.interrupts import Interrupts, interruptible

_UNEXPECTED = 70
"""Exit code of a fault of this program (``EX_SOFTWARE`` of sysexits.h)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 when it succeeded, 2 when its input was refused, 70 after a fault of this program, 130 and 143 when
    SIGINT and SIGTERM ended it. Signals are taken only for the arguments of the process (None).
    """
    if arguments is not None:
        return _run(arguments, Path(tempfile.gettempdir()))
    reports = Path(tempfile.gettempdir())
    with interruptible() as interrupts:
        try:
            code = _run(sys.argv[1:], reports)
        except BaseException:
            # Native code makes other exceptions of an interrupt that passes through it.
            if interrupts.received is None:
                raise
        if interrupts.received is not None:
            _end_interrupted(interrupts)
        return code


def _run(arguments: Sequence[str], reports: Path) -> int:
    """Run one command; every failure is a sentence on stderr and an exit code."""
    is_debugged = "--debug" in arguments
    try:
        from tvm_xengine.commands.dispatch import run_command

        run_command([argument for argument in arguments if argument != "--debug"])
    except KeyboardInterrupt:
        print("tvm-xengine: interrupted; what was measured is kept", file=sys.stderr)  # noqa: T201
        return 130
    except BrokenPipeError:
        return 128 + 13  # as a shell reports SIGPIPE: who read the output has left
    except Exception as error:
        from tvm_xengine.commands.failures import explained, reported

        if is_debugged:
            raise
        known = explained(error)
        sentence, code = (known, 2) if known else (reported(error, reports), _UNEXPECTED)
        print(f"tvm-xengine: error: {sentence}", file=sys.stderr)  # noqa: T201
        return code
    return 0


def _end_interrupted(interrupts: Interrupts) -> None:
    """Leave without the interpreter's own end, which waits for threads and native code."""
    sys.stdout.flush()
    sys.stderr.flush()
    interrupts.leave()


if __name__ == "__main__":
    sys.exit(main())
