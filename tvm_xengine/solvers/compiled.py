"""How the functions of the searches are compiled: once per machine, without reference counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

_P = ParamSpec("_P")
_R = TypeVar("_R")


# Counting references to the many arrays would cost five times what the work costs.
_EVERYWHERE: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
_INSIDE = {**_EVERYWHERE, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def entry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that Python calls; other threads run meanwhile."""
    return _compiled(function, _EVERYWHERE)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only compiled functions call; this is quicker to compile."""
    return _compiled(function, _INSIDE)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function into its callers: passing the many arrays on costs as much as it does."""
    return _compiled(function, {**_INSIDE, "forceinline": True})


def _compiled(function: Callable[_P, _R], options: dict[str, Any]) -> Callable[_P, _R]:
    return cast("Callable[_P, _R]", _watching_every_source(njit(**options)(function), function))


def _watching_every_source(dispatcher: Any, function: Callable[..., object]) -> Any:
    """`dispatcher` with a cache that is void once any module of the function's folder has changed.

    By itself numba only watches the file of the function, not of those it calls.
    """
    folder = Path(function.__code__.co_filename).parent
    stamp = tuple(
        (path.name, path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(folder.glob("*.py"))
    )
    dispatcher._cache._cache_file._source_stamp = stamp
    return dispatcher
