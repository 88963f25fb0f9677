"""Functions that numba compiles once per machine, or in each process where nothing can be kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit, types

from tvm_xengine.files.say_once import say_once

_logger = logging.getLogger(__name__)

_REPLACED = (max, min)
"""While ``torch.export`` runs, these are other functions in every thread, which numba cannot compile, and
a solve that has ended may still be compiling. So compiled functions find them in their module."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R], *folders: Path, **options: bool | str) -> Callable[_P, _R]:
    """Compile a function when it is first called.

    Parameters
    ----------
    folders
        What is kept is void once a module of the function's own folder or of these has changed.
    options
        Of ``numba.njit``.
    """
    for builtin in _REPLACED:
        function.__globals__.setdefault(builtin.__name__, builtin)
    if _has_place_for_a_cache():
        try:
            dispatcher = njit(cache=True, **options)(function)
        except (RuntimeError, OSError) as error:  # numba finds no folder that it may write to
            say_once(_logger, f"compiled solvers are not kept: {error}")
        else:
            _watch_sources(dispatcher, (Path(function.__code__.co_filename).parent, *folders))
            _save_where_possible(dispatcher)
            return cast("Callable[_P, _R]", _compiled_once(dispatcher))
    return cast("Callable[_P, _R]", _compiled_once(njit(cache=False, **options)(function)))


def as_written(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A compiled function as Python runs it; what it calls is still compiled."""
    return cast("Callable[_P, _R]", function.py_func)  # type: ignore[attr-defined]


def _compiled_once(dispatcher: Any) -> Any:
    """The dispatcher, which other compiled functions call by types alone.

    By itself numba compiles it again, with all that it calls, for every constant among the
    arguments of such a call.
    """
    typed = dispatcher.get_call_template

    def by_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        named = {name: types.unliteral(kind) for name, kind in kws.items()}
        return typed(tuple(map(types.unliteral, args)), named)

    dispatcher.get_call_template = by_types
    return dispatcher


def _has_place_for_a_cache() -> bool:
    """Whether numba knows a folder: without a home it would make one that is called ``~``."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return True
    try:
        return Path.home().is_absolute()
    except RuntimeError:
        return False


def _watch_sources(dispatcher: Any, folders: tuple[Path, ...]) -> None:
    """Make the cache void once a module in `folders` has changed.

    By itself numba only watches the file of the function, not of those it calls. The stamp
    is part of the version, which numba compares before it unpickles anything: what is cached may
    name classes that have moved since.
    """
    stamp = tuple(
        (path.name, path.stat().st_mtime_ns, path.stat().st_size)
        for folder in folders
        for path in sorted(folder.glob("*.py"))
    )
    cache_file = dispatcher._cache._cache_file
    cache_file._version = f"{cache_file._version} {stamp}"


def _save_where_possible(dispatcher: Any) -> None:
    """Let a function that cannot be kept (no space left) be used nevertheless."""
    save = dispatcher._cache.save_overload

    def save_if_possible(signature: object, code: object) -> None:
        try:
            save(signature, code)
        except OSError as error:
            where = dispatcher._cache.cache_path
            say_once(_logger, f"compiled solvers are not kept: {where}: {error.strerror or error}")

    dispatcher._cache.save_overload = save_if_possible
