"""Completion scripts: those of Cyclopts, in which the names of files complete, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

SHELLS = ("bash", "zsh", "fish")

_EDITS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "bash": (
            # Readline itself completes and quotes names of files where the function knows nothing.
            ("complete -F", "complete -o filenames -o default -F"),
            ('COMPREPLY=( $(compgen -f -- "${cur}") )', "COMPREPLY=()"),
            ('printf -v _q \'%q\' "$_x"; COMPREPLY+=("$_q")', 'COMPREPLY+=("$_x")'),
            ("2>/dev/null)", '2>/dev/null; compgen -f -- "${cur}")'),
        ),
        "zsh": (("-a _cyc_vals\n", "-a _cyc_vals\n    _files\n"),),
        "fish": (
            ("-f -a '(__fish_tvm-xengine_complete)'", "-F -a '(__fish_tvm-xengine_complete)'"),
            ("-x -a '(__fish_tvm-xengine_complete)'", "-r -F -a '(__fish_tvm-xengine_complete)'"),
        ),
    }
)
"""What is replaced in the script of a shell: where the program knows names, files are meant as well."""

_ZSH_FUNCTION = "_cyclopts_tvm-xengine"
_ZSH_END = f"""\
if [[ $funcstack[1] == {_ZSH_FUNCTION} ]]; then
  {_ZSH_FUNCTION} "$@"
else
  compdef {_ZSH_FUNCTION} tvm-xengine
fi
"""
"""The script works in a folder of ``$fpath``, and where it is read by ``source``."""


def offered(*names: str) -> Callable[[object], tuple[str, ...]]:
    """A completer of values that are one of `names` or a file."""
    return lambda _context: names


def completion_script(app: App, shell: str) -> str:
    """The script that completes commands, options, values and files in `shell`.

    Raises
    ------
    RuntimeError
        When Cyclopts' script is not the one that is edited here.
    """
    script = app.generate_completion(shell=shell)  # type: ignore[arg-type]
    for found, instead in _EDITS[shell]:
        if found not in script:
            raise RuntimeError(f"the completion script of {shell} does not hold {found!r}")
        script = script.replace(found, instead)
    return f"{script.rstrip()}\n{_ZSH_END if shell == 'zsh' else ''}"
