"""Parses a command line, and runs the function of its command."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cyclopts import CycloptsError, UnusedCliTokensError

from tvm_xengine.commands.app import app
from tvm_xengine.commands.usage import UsageError
from tvm_xengine.kernels.threads import sharing_cores


def run_command(arguments: Sequence[str]) -> None:
    """Run the command that `arguments` say; without any, show the help.

    Raises
    ------
    UsageError
        When the arguments are refused.
    XEngineError
        When what they name is.
    """
    try:
        command, bound, _ = app.parse_args(
            list(arguments) or ["--help"], exit_on_error=False, print_error=False
        )
    except CycloptsError as error:
        raise UsageError(_sentence(error)) from error
    _require_values(arguments)
    logger = logging.getLogger("tvm_xengine")
    level = logger.level
    try:
        with sharing_cores():
            command(*bound.args, **bound.kwargs)
    finally:
        logger.setLevel(level)  # which `--quiet` raises


def _require_values(arguments: Sequence[str]) -> None:
    """Refuse an option for a list of values that is followed by none: the parser ignores it."""
    _, apps, tokens = app.parse_commands(list(arguments))
    if not tokens:
        return
    taken = {
        name
        for argument in apps[-1].assemble_argument_collection()
        if argument.token_count()[1]
        for name in argument.names
    }
    for token, following in zip(tokens, [*tokens[1:], "--"], strict=True):
        if token == "--":
            return  # what comes behind is no option
        if token in taken and following.startswith("--"):
            raise UsageError(f"option {token}: expected a value or several, found none; see --help")


def _sentence(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or ())
        return f"unexpected argument {unused!r}; see --help"
    text = " ".join(str(error).split()).removesuffix(".")
    return text[:1].lower() + text[1:]
