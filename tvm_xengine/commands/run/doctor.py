"""``tvm-xengine doctor``: what works here, and how to get what is missing."""

from __future__ import annotations

import sys

from tvm_xengine.commands.arguments.options import OutputOptions
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.doctor.diagnosis import diagnose_installation
from tvm_xengine.doctor.tables import shown

_UNHEALTHY = 1
"""Exit code where something required does not work."""


def run_doctor(options: OutputOptions) -> None:
    """Look and report; exit code 1 where something required does not work."""
    terminal = Terminal(options)
    with terminal.reporting() as reporter:
        found = diagnose_installation(reporter.status)
        reporter.status("")
    terminal.show(*shown(found))
    terminal.write(found.document())
    if not found.is_healthy:
        sys.exit(_UNHEALTHY)
