"""Parses a command line, and runs the function of its command."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from os.path import realpath
from pathlib import Path
from typing import Any

from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from tvm_xengine.checks.names import meant
from tvm_xengine.commands.app import app
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.memory import check_room
from tvm_xengine.files.named_errors import naming
from tvm_xengine.kernels.threads.settings import sharing_cores


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
        asked = _asked_for_help(arguments)
        if asked is not None:
            app.help_print(asked)
            return
        if any(token in app.version_flags for token in takewhile(_is_no_end, arguments)):
            app.version_print()  # whatever else is given, which Cyclopts would read as its options
            return
        check_room(app.parse_commands(list(arguments))[0])
        command, bound, _ = _parsed(arguments)
    except CycloptsError as error:
        raise UsageError(_behind_end(arguments, error) or _sentence(error)) from error
    _require_values(arguments)
    _require_own_files(arguments)
    logger = logging.getLogger("tvm_xengine")
    level = logger.level
    try:
        with sharing_cores():
            command(*bound.args, **bound.kwargs)
    finally:
        logger.setLevel(level)  # which `--quiet` raises


def _parsed(arguments: Sequence[str]) -> Any:
    return app.parse_args(list(arguments), exit_on_error=False, print_error=False)


def _asked_for_help(arguments: Sequence[str]) -> Sequence[str] | None:
    """The command of which help is asked; None where none is.

    Cyclopts finds that out too, after it has read all options of the command, which takes half of
    the time that its help may take.
    """
    given = list(takewhile(_is_no_end, arguments))
    named = [token for token in given if token not in app.help_flags]
    if arguments and named == given:
        return None
    _, apps, unused = app.parse_commands(named)
    if apps[-1].default_command is None and unused and not unused[0].startswith("-"):
        _parsed(named)  # which says what there is in place of an unknown command
    return named


def _is_no_end(token: str) -> bool:
    """Whether options may follow a token."""
    return token != "--"


def _require_values(arguments: Sequence[str]) -> None:
    """Refuse an option for a list of values that is followed by none: the parser ignores it."""
    commands, _, tokens = app.parse_commands(list(arguments))
    given = list(takewhile(_is_no_end, tokens))  # what comes behind is no option
    for token, following in zip(given, [*given[1:], "--"], strict=False):
        is_alone = token.startswith("-") and following.startswith("--")
        if is_alone and token in _options_of_lists(commands):
            raise UsageError(f"option {token}: expected a value or several, found none; see --help")


@cache
def _options_of_lists(commands: tuple[str, ...]) -> frozenset[str]:
    """The options of a command that take several values; finding them out takes 80 ms."""
    _, apps, _ = app.parse_commands(list(commands))
    if apps[-1] is app:
        return frozenset()
    return frozenset(
        name
        for argument in apps[-1].assemble_argument_collection()
        if argument.token_count()[1]
        for name in argument.names
    )


_WRITTEN = frozenset(
    {"--checkpoint", "--figures", "--json", "--memory-snapshot", "--output", "--plot", "--report"}
    | {"--save", "--save-plan", "--save-problem", "--save-schedule", "--trace", "-o"}
)
"""Options that name what a command writes."""
_CONTINUED = ("--resume", "--checkpoint")
"""A run goes on in the file that it was resumed from."""


def _require_own_files(arguments: Sequence[str]) -> None:
    """Refuse an output that would replace another one, or a file that the command reads."""
    given = list(_named(arguments))
    for option, value in given:
        if option not in _WRITTEN or value == "-":
            continue
        with naming(Path(value)):  # a relative one in a folder that was removed
            path = Path(realpath(value))
        for other, text in given:
            is_same = (option, value) == (other, text) or {option, other} == set(_CONTINUED)
            if is_same or text == "-" or (other not in _WRITTEN and not Path(text).is_file()):
                continue
            if Path(realpath(text)) == path and not _is_device(path):
                reader = f"option {other}" if other else "the argument"
                raise UsageError(
                    f"option {option}: {value} is also the file of {reader}; give each its own"
                )


def _named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every value with the option before it, which is empty for an argument."""
    option = ""
    for token in arguments:
        name, equals, value = token.partition("=")
        if token.startswith("-") and token != "-":
            option = name
            if equals:
                yield option, value
        else:
            yield option, token
            option = ""


def _is_device(path: Path) -> bool:
    """Whether it is a terminal or ``/dev/null``, to which several may write."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _behind_end(arguments: Sequence[str], error: CycloptsError) -> str:
    """The sentence for an option behind the end of options; nothing where there is none."""
    if not isinstance(error, UnknownOptionError) or "--" not in arguments:
        return ""
    token = error.token.keyword or error.token.value
    if token in takewhile(_is_no_end, arguments):
        return ""
    return f"unexpected argument {token!r}: behind -- nothing is an option; give options before it"


def _sentence(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or ())
        return f"unexpected argument {unused!r}; see --help"
    unknown = (error.unused_tokens or [""])[0] if isinstance(error, UnknownCommandError) else ""
    if unknown.startswith("-"):
        return f"unknown option {unknown}{meant(unknown, app.version_flags) or '; see --help'}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        # Of a group of options, Cyclopts tells their number and no name.
        missing = [one.names[0] for one in error.argument.children if one.required]
        if missing:
            return f"expected the options {' and '.join(sorted(missing))}; see --help"
        name, given = error.argument.name, len(error.tokens_so_far or ())
        if given:
            return f"expected {error.argument.token_count()[0]} values for {name}, got {given}"
        wanted = f"the option {name} with a value" if name.startswith("-") else name
        return f"expected {wanted}; see --help"
    text = " ".join(str(error).split()).removesuffix(".")
    return text[:1].lower() + text[1:]
