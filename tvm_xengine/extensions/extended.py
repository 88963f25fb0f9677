"""Tables that other packages extend by entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import walk_packages
from typing import Any, TypeVar, cast

from tvm_xengine.errors import ExtensionError

T = TypeVar("T")


@dataclass(frozen=True)
class Extended(Mapping[str, T]):
    """A table of this package, followed by what other packages add to it.

    An entry of another package is loaded when it is looked up, so that a broken package disturbs
    only those who use it.

    Attributes
    ----------
    group
        Name of the group of entry points.
    own
        The entries of this package, which no other package replaces.
    """

    group: str
    own: Mapping[str, T]
    plugged: Mapping[str, EntryPoint]

    def __getitem__(self, name: str) -> T:
        """The entry with a name.

        Raises
        ------
        ExtensionError
            When another package has it and its code cannot be loaded.
        """
        if name in self.own:
            return self.own[name]
        entry = self.plugged[name]
        try:
            return cast(T, entry.load())
        except Exception as error:  # whatever the other package raises when it is imported
            raise ExtensionError(
                f"{name!r} of the entry points {self.group}: expected an object at {entry.value},"
                f" found: {error}; repair or uninstall the package that names it"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self.plugged))

    def __len__(self) -> int:
        return len(self.own) + len(self.plugged)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.plugged


def extended(group: str, own: Mapping[str, T]) -> Extended[T]:
    """`own` with the entry points of a group that are installed."""
    installed = _installed(group, tuple(sys.path))
    return Extended(group, own, {entry.name: entry for entry in installed if entry.name not in own})


def joined(package: str, name: str) -> dict[str, Any]:
    """The entries of the tables called `name` in the modules of a package and of those below it."""
    found = walk_packages(import_module(package).__path__, f"{package}.")
    modules = [import_module(module.name) for module in found]
    return {key: value for module in modules for key, value in getattr(module, name, {}).items()}


@lru_cache
def _installed(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points that packages on the path have; reading them all takes milliseconds."""
    return tuple(sorted(entry_points(group=group), key=lambda entry: entry.name))
