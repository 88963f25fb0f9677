"""Commands in this process, which has already loaded what they need."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

from tvm_xengine.__main__ import main


@dataclass(frozen=True)
class Finished:
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str

    def refusal(self) -> str:
        """The message of a command whose input was refused."""
        assert self.returncode == 2, self.stdout + self.stderr
        assert "Traceback" not in self.stderr
        return " ".join(self.stderr.split())


def run_command(*arguments: str) -> Finished:
    """Run a command as ``python -m tvm_xengine`` does, without starting a process."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Finished(code, out.getvalue(), err.getvalue())
