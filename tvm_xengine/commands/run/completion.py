"""``completion``: print the completion script of a shell, or install it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_xengine.commands.arguments.parameter import HAS_COMPLETERS
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.completion import SHELLS, completion_script
from tvm_xengine.files.atomic_write import write_atomically, write_bytes_atomically
from tvm_xengine.files.named_errors import naming

if TYPE_CHECKING:
    from cyclopts import App

_SCRIPTS = {
    "bash": ".local/share/bash-completion/completions/tvm-xengine",
    "zsh": ".zsh/completions/_cyclopts_tvm-xengine",
    "fish": ".config/fish/completions/tvm-xengine.fish",
}
"""Below the home folder, where fish, and bash with the package bash-completion, find it."""

_STARTS = {
    "bash": (".bashrc", "[ ! -f {script} ] || . {script}"),
    "zsh": (
        ".zshrc",
        "(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }};"
        " [ ! -f {script} ] || . {script}",
    ),
}
"""Files that the shells read when they start, and the line that loads the script."""


def run_completion(app: App, shell: str | None, *, is_installed: bool) -> None:
    """Print the script of `shell`, or install it in the home folder."""
    if not HAS_COMPLETERS:
        raise UsageError("completion scripts need Python 3.11 or newer, and Cyclopts 5 on it")
    shell = shell or _shell_of_session()
    text = completion_script(app, shell)
    if not is_installed:
        print(text, end="")  # noqa: T201
        return
    script = Path.home() / _SCRIPTS[shell]
    write_atomically(script, text)
    print(f"wrote {script}")  # noqa: T201
    if shell in _STARTS:
        name, line = _STARTS[shell]
        _add_line(Path.home() / name, line.format(script=shlex.quote(str(script))))
    print(f"start a new {shell} for it to take effect")  # noqa: T201


def _shell_of_session() -> str:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        shell = detect_shell()
    except ShellDetectionError as error:
        raise UsageError(f"the shell is not known; name one of {', '.join(SHELLS)}") from error
    if shell not in SHELLS:
        raise UsageError(f"expected one of the shells {', '.join(SHELLS)}, found {shell}")
    return shell


def _add_line(file: Path, line: str) -> None:
    """Append a line to a file that may not exist; a line that it has is not added again."""
    with naming(file):
        text = os.fsdecode(file.read_bytes()) if file.exists() else ""
        if line in text.splitlines():
            return
        gap = "" if not text or text.endswith("\n") else "\n"
        added = f"{text}{gap}# completion of tvm-xengine\n{line}\n"
        write_bytes_atomically(file, os.fsencode(added))
    print(f"added a line to {file}")  # noqa: T201
