"""The prefix of a package's files and C names, and names that must differ in its functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tvm_xengine.aot.c_names import NO_PREFIXES, c_identifier
from tvm_xengine.aot.entries import Entry
from tvm_xengine.checks.names import some
from tvm_xengine.errors import ExportError, InvalidPlatformError, UnsupportedModelError


def check_package_name(name: str) -> None:
    """Check that `name` can be the prefix of files and C names.

    Raises
    ------
    ExportError
        If it is no C identifier in lower case, too long for names that every C11 compiler tells apart, or
        a word that C, its headers, CMake or the code of packages use.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name):
        raise ExportError(
            "the name of a package must be a C identifier of at most 32 characters in lower case, got"
            f" {name!r}"
        )
    if name in NO_PREFIXES:
        raise ExportError(
            f"no package can be called {name!r}, which is a word of C, a header of its library, a target of"
            f" CMake or a name in every package; call it e.g. net_{name}"
        )


def package_name(model_name: str) -> str:
    """`model_name` as a prefix of files and C names.

    Raises
    ------
    UnsupportedModelError
        If it has no letter.
    """
    stem = Path(model_name).stem
    text = "".join(c.lower() if c.isascii() and c.isalnum() else "_" for c in stem)
    text = f"net_{text}" if not text or text[0].isdigit() or text in NO_PREFIXES else text
    if not text.strip("_"):
        raise UnsupportedModelError(
            f"the model name {model_name!r} has no letter; rename the model"
        )
    return text


def check_region_names(
    regions: Sequence[str], arguments: Iterable[str], entries: Collection[Entry]
) -> None:
    """Check that regions have other names than the arguments of functions, and macros of their own.

    Parameters
    ----------
    arguments
        Inputs and results by their names in the model: in a C function they are variables, as regions are.

    Raises
    ------
    InvalidPlatformError
        If they do not.
    """
    if taken := sorted({c_identifier(name) for name in arguments} & set(regions)):
        raise InvalidPlatformError(
            f"the model has inputs or results named {taken}, as regions are; rename the regions"
        )
    starts = ["", *(f"{entry.value}_" for entry in entries)]
    macros = [f"{start}{name}" for start in starts for name in regions]
    macros += [f"{name}_{end}" for name in regions for end in ("kept", "accumulated", "bytes")]
    if twice := [name for name, count in Counter(macros).items() if count > 1]:
        raise InvalidPlatformError(
            f"the regions {some(regions)} would share names that end in {some(twice)} in the header;"
            " rename one of them"
        )
